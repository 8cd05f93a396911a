// SPDX-License-Identifier: MIT
// Server.java - a whole HTTP server with a rate for each client and a limit of
// requests in flight: java Server ADDRESS-OF-THE-AGENT [PORT]

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;
import weir.Agent;
import weir.Permit;
import weir.Reply;

public final class Server {
    private static void answer(HttpExchange request, int status, String text)
        throws IOException {
        byte[] body = text.getBytes();
        request.sendResponseHeaders(status, body.length);
        request.getResponseBody().write(body);
        request.close();
    }

    private static void handle(Agent agent, HttpExchange request)
        throws IOException {
        String client = request.getRemoteAddress().getAddress()
                            .getHostAddress();
        Reply reply = agent.rate("each/" + client).ask(1);
        if (!reply.passed()) {
            reply.retryAfter().ifPresent(
                wait -> request.getResponseHeaders().set(
                    "Retry-After", String.valueOf(wait.toSeconds() + 1)));
            answer(request, 429, "slow down\n");
            return;
        }
        try (Permit permit = agent.concurrency("db").enter()) {
            if (permit.passed())
                answer(request, 200, "forty-two\n");
            else
                answer(request, 503, "too much is in flight\n");
        }
    }

    public static void main(String[] arguments) throws IOException {
        Agent agent = new Agent(arguments[0]);
        int port = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 0;
        HttpServer server = HttpServer.create(
            new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 0);
        server.createContext("/", request -> handle(agent, request));
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.start();
        System.out.println("http://127.0.0.1:" +
                           server.getAddress().getPort() + "/");
    }
}
