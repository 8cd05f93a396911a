// SPDX-License-Identifier: MIT
// Agent.java - a client of `weir agent` on this host: its HTTP listener, on
// loopback or at a unix socket, with the JDK's library. Java 17.
//
// A decision is a round trip over a socket of this host. Connections are few
// and shared by all threads; a call has one to itself until it is answered. A
// permit belongs to its connection: the agent gives it back when the connection
// ends, for any reason, so permits can't be lost.

package weir;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.UnixDomainSocketAddress;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;

/** A client of an agent, which decides. Any thread may call; a process needs
 * only one. */
public final class Agent implements AutoCloseable {
    /** How to reach an agent. */
    public record Options(int connections, Duration timeout, String token,
                          boolean passWhenAway) {
        public Options {
            if (connections < 1)
                throw new IllegalArgumentException("connections: 1 or more");
        }

        /** Four connections for takes and as many for permits, a second, no
         * token; requests pass if no agent answers. */
        public static Options usual() {
            return new Options(4, Duration.ofSeconds(1), null, true);
        }

        /** So many for takes and as many for permits. A connection has at most
         * 1,024 permits in flight, and an enter on a full one is a {@link
         * WeirException} of status 503. A process with more in flight needs
         * more connections, with some to spare, for they aren't filled
         * evenly. */
        public Options withConnections(int count) {
            return new Options(count, timeout, token, passWhenAway);
        }

        /** For one answer, connecting included; but not the look-up of a host's
         * name, which is the system's. */
        public Options withTimeout(Duration time) {
            return new Options(connections, time, token, passWhenAway);
        }

        /** A token of the agent's --credentials with the role take. */
        public Options withToken(String text) {
            return new Options(connections, timeout, text, passWhenAway);
        }

        /** Whether requests pass while no agent answers. */
        public Options withPassWhenAway(boolean pass) {
            return new Options(connections, timeout, token, pass);
        }
    }

    private final Options options;
    // Separate: a take that times out ends its connection, which must not have
    // permits of other calls.
    private final Connection[] takes, permits;
    private final AtomicInteger next = new AtomicInteger();

    /** Connects at the first call, so the agent may start later. @param address
     * {@code "127.0.0.1:7079"}, {@code ":7079"} or
     *     {@code "unix:/run/weir.sock"} */
    public Agent(String address, Options options) {
        this.options = options;
        SocketAddress to = addressOf(address);
        takes = new Connection[options.connections()];
        permits = new Connection[options.connections()];
        for (int i = 0; i < takes.length; i++) {
            takes[i] = new Connection(to, options);
            permits[i] = new Connection(to, options);
        }
    }

    public Agent(String address) {
        this(address, Options.usual());
    }

    private static SocketAddress addressOf(String address) {
        if (address.startsWith("unix:"))
            return UnixDomainSocketAddress.of(address.substring(5));
        int colon = address.lastIndexOf(':');
        if (colon < 0)
            throw new IllegalArgumentException(
                address + ": HOST:PORT, :PORT or unix:PATH");
        String host = colon == 0 ? "127.0.0.1" : address.substring(0, colon);
        // A connection looks the host up each time it connects.
        return InetSocketAddress.createUnresolved(
            host.replaceAll("[\\[\\]]", ""),
            Integer.parseInt(address.substring(colon + 1)));
    }

    /** A quota of kind rate: requests, bytes. Costs nothing; keep it or not. */
    public Rate rate(String name) {
        return new Rate(this, name);
    }

    /** A quota of kind concurrency: units in flight. */
    public Concurrency concurrency(String name) {
        return new Concurrency(this, name);
    }

    /** Ends all connections; the units of all permits are free again. */
    @Override
    public void close() {
        for (int i = 0; i < takes.length; i++) {
            takes[i].close();
            permits[i].close();
        }
    }

    // ---- For Rate, Concurrency and Permit ----

    /** A free connection, or the next in turn. */
    private Connection pick(Connection[] connections) {
        int first = Math.floorMod(next.getAndIncrement(), connections.length);
        for (int i = 0; i < connections.length; i++) {
            Connection c = connections[(first + i) % connections.length];
            if (c.lock.tryLock())
                return c;
        }
        connections[first].lock.lock();
        return connections[first];
    }

    Reply take(String body) {
        return ask(pick(takes), "/v1/take", body);
    }

    Reply settle(String path, String body) {
        return ask(pick(takes), path, body);
    }

    Reply enter(String body) {
        return ask(pick(permits), "/v1/enter", body);
    }

    private Reply ask(Connection connection, String path, String body) {
        try {
            return reply(connection.call(path, body), connection);
        } catch (IOException gone) {
            return Reply.away(options.passWhenAway());
        } finally {
            connection.lock.unlock();
        }
    }

    private static Reply reply(Connection.Answer answer, Connection on) {
        Map<String, Object> said = Json.object(answer.body());
        if (answer.status() != 200 && answer.status() != 429)
            throw new WeirException(answer.status(),
                                    String.valueOf(said.get("detail")));
        return Reply.of(said, on, answer.life());
    }
}
