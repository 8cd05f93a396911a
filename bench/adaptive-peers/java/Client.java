// SPDX-License-Identifier: MIT

import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Locale;
import java.util.concurrent.ConcurrentLinkedDeque;

/**
 * GET requests to one server, each on a kept connection of its own. The JDK's
 * client takes some milliseconds of processor time for each of the first
 * thousand requests: twenty processes with it measure themselves.
 */
final class Client {
    private static final String LENGTH = "content-length:";
    private static final int LINE_MAX = 8192;

    private record Connection(Socket socket, InputStream in) {}

    private final InetSocketAddress server;
    private final byte[] request;
    private final int timeoutMs;
    private final ConcurrentLinkedDeque<Connection> idle =
        new ConcurrentLinkedDeque<>();

    Client(URI url, int timeoutMs) {
        this.timeoutMs = timeoutMs;
        server = new InetSocketAddress(url.getHost(), url.getPort());
        request = ("GET / HTTP/1.1\r\nHost: " + url.getAuthority()
                   + "\r\n\r\n").getBytes(StandardCharsets.US_ASCII);
    }

    /** Blocks; the outcome as go/load/main.go has it, never d. */
    char get() {
        Connection connection = null;
        try {
            connection = idle.pollFirst();
            if (connection == null)
                connection = connect();
            // The answers are so small that they come in one piece.
            connection.socket.setSoTimeout(timeoutMs);
            connection.socket.getOutputStream().write(request);
            int status = answer(connection.in);
            idle.addFirst(connection);
            return status == 200 ? 's' : 'e';
        } catch (SocketTimeoutException error) {
            close(connection);
            return 't';
        } catch (IOException error) {
            close(connection);
            return 'e';
        }
    }

    private Connection connect() throws IOException {
        Socket socket = new Socket();
        try {
            socket.setTcpNoDelay(true);
            socket.connect(server, timeoutMs);
            return new Connection(socket, new BufferedInputStream(
                socket.getInputStream()));
        } catch (IOException error) {
            socket.close();
            throw error;
        }
    }

    private static void close(Connection connection) {
        try {
            if (connection != null)
                connection.socket.close();
        } catch (IOException error) {
            // It is gone all the same.
        }
    }

    /** Reads an answer that states its length; returns its status. */
    private static int answer(InputStream in) throws IOException {
        try {
            int status = Integer.parseInt(line(in).split(" ")[1]);
            int length = 0;
            for (String head = line(in); !head.isEmpty(); head = line(in))
                if (head.toLowerCase(Locale.ROOT).startsWith(LENGTH))
                    length = Integer.parseInt(
                        head.substring(LENGTH.length()).trim());
            in.skipNBytes(length);
            return status;
        } catch (IndexOutOfBoundsException | NumberFormatException error) {
            throw new IOException("not an answer of HTTP", error);
        }
    }

    private static String line(InputStream in) throws IOException {
        StringBuilder text = new StringBuilder();
        for (int c = in.read(); c != '\n'; c = in.read()) {
            if (c < 0 || text.length() == LINE_MAX)
                throw new IOException("a line without end");
            if (c != '\r')
                text.append((char) c);
        }
        return text.toString();
    }
}
