// SPDX-License-Identifier: MIT
// WeirTest.java - the client beside a real agent; live_java.py runs it. No
// library for tests: each method with a name that begins with "test" is one.

import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import weir.Agent;
import weir.Permit;
import weir.Reply;
import weir.WeirException;

public final class WeirTest {
    private static final Duration PATIENCE = Duration.ofMinutes(1);
    private final String place, unix;
    private final Agent.Options patient =
        Agent.Options.usual().withTimeout(PATIENCE);

    private WeirTest(String place, String unix) {
        this.place = place;
        this.unix = unix;
    }

    private static void check(boolean holds, Object said) {
        if (!holds)
            throw new AssertionError(said);
    }

    void testRate() {
        try (Agent agent = new Agent(place, patient)) {
            check(agent.rate("three").take(2), "two of three");
            Reply reply = agent.rate("three").peek(1);
            check(reply.passed() && reply.remaining().get() == 1, reply);
            check(agent.rate("three").take(), "the third");
            reply = agent.rate("three").ask(1);
            check(!reply.passed() && reply.quota().equals("three"), reply);
            check(reply.retryAfter().get().compareTo(Duration.ZERO) > 0,
                  reply);
            check(!reply.never() && !reply.away(), reply);
            check(agent.rate("three").ask(4).never(), "four never pass");
            check(agent.rate("three").settle(3, 1) == 1, "two given back");
            check(agent.rate("three").peek(1).remaining().get() == 2, "two");
            check(agent.rate("three").settle(1, 2) == 2, "one more");
            check(agent.rate("three").charge(5) == 5, "into debt");
            check(!agent.rate("three").peek(1).passed(), "in debt");
            check(agent.rate("three").settle(7, 3) == 3, "as before");
            check(agent.rate("nobody").settle(3, 4) == 3, "no such quota");
        }
    }

    void testNames() {
        try (Agent agent = new Agent(place, patient)) {
            String odd = "each/ü\"\\\u6f22 \ud83d\ude00";
            check(agent.rate(odd).ask(1).quota().equals(odd), odd);
            Reply reply = agent.rate("nobody's").ask(1);
            check(reply.passed() && reply.unknown(), reply);
            check(reply.remaining().isEmpty(), reply);
        }
    }

    void testWhatIsNoName() {
        try (Agent agent = new Agent(place, patient)) {
            agent.rate("a\nb").take();
            check(false, "a line feed is in no name");
        } catch (WeirException refused) {
            check(refused.status() == 400, refused);
            check(refused.getMessage().contains("name"), refused);
        }
    }

    /** The agent answers a name of that length with 413 and ends the
     * connection. */
    void testALongNameCostsNobodysPermit() {
        try (Agent agent = new Agent(place, patient.withConnections(1));
             Permit both = agent.concurrency("two").enter(2, null)) {
            check(both.passed(), both.reply());
            for (String name : List.of("a".repeat(8193), "\u00fc".repeat(4097),
                                       "a".repeat(1 << 20)))
                try {
                    agent.concurrency(name).enter();
                    check(false, "8193 bytes are too many");
                } catch (WeirException refused) {
                    check(refused.status() == 400, refused);
                    check(refused.getMessage().contains("name"), refused);
                }
            check(agent.rate("a".repeat(8192)).take(), "8192 are one");
            check(!agent.concurrency("two").enter().passed(),
                  "it is still held");
        }
    }

    void testConcurrency() {
        try (Agent agent = new Agent(place, patient);
             Permit first = agent.concurrency("two").enter()) {
            check(first.passed(), first.reply());
            Permit second = agent.concurrency("two").enter();
            check(second.passed(), second.reply());
            try (Permit third = agent.concurrency("two").enter()) {
                check(!third.passed(), third.reply());
            }
            second.outcome(Permit.Outcome.DROPPED);
            second.close();
            second.close(); // a second close gives nothing back
            try (Permit third = agent.concurrency("two").enter();
                 Permit fourth = agent.concurrency("two").enter()) {
                check(third.passed() && !fourth.passed(), third.reply());
            }
        }
    }

    void testSeveralAtOnce() {
        try (Agent agent = new Agent(place, patient);
             Permit both = agent.concurrency("two").enter(2, "bulk");
             Permit more = agent.concurrency("two").enter()) {
            check(both.passed() && !more.passed(), both.reply());
        }
        // A rate has no units in flight.
        try (Agent agent = new Agent(place, patient);
             Permit none = agent.concurrency("each/held").enter()) {
            check(none.passed(), none.reply());
        }
    }

    /** Waits for the agent to see that a connection has ended. */
    private void untilFree(Agent agent, int units) {
        long end = System.nanoTime() + PATIENCE.toNanos();
        for (;;) {
            try (Permit all = agent.concurrency("two").enter(units, null)) {
                if (all.passed())
                    return;
            }
            check(System.nanoTime() < end, "permits stay");
            Thread.onSpinWait();
        }
    }

    void testPermitsGoWithTheirConnection() {
        Agent gone = new Agent(place, patient);
        Permit lost = gone.concurrency("two").enter(2, null);
        check(lost.passed(), lost.reply());
        gone.close();
        try (Agent agent = new Agent(unix, patient)) {
            untilFree(agent, 2);
            try (Permit all = agent.concurrency("two").enter(2, null)) {
                lost.close(); // doesn't leave another permit
                check(!agent.concurrency("two").enter().passed(),
                        "two and one");
            }
        }
    }

    void testThreads() throws InterruptedException {
        AtomicInteger in = new AtomicInteger(), most = new AtomicInteger();
        AtomicInteger passed = new AtomicInteger(), limited =
                                                        new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        CountDownLatch start = new CountDownLatch(1);
        try (Agent agent = new Agent(unix, patient)) {
            for (int i = 0; i < 8; i++)
                threads.add(new Thread(() -> {
                    try {
                        start.await();
                    } catch (InterruptedException never) {
                        return;
                    }
                    for (int k = 0; k < 500; k++)
                        try (Permit permit = agent.concurrency("two").enter()) {
                            if (!permit.passed()) {
                                limited.incrementAndGet();
                                continue;
                            }
                            most.accumulateAndGet(in.incrementAndGet(),
                                                  Math::max);
                            passed.incrementAndGet();
                            in.decrementAndGet();
                        }
                }));
            threads.forEach(Thread::start);
            start.countDown();
            for (Thread thread : threads)
                thread.join();
            check(most.get() <= 2, most);
            check(passed.get() > 0, passed);
            check(passed.get() + limited.get() == 8 * 500, limited);
            untilFree(agent, 2);
        }
    }

    void testInterruptedThreadsTakeToo() {
        try (Agent agent = new Agent(place, patient.withConnections(1));
             Permit permit = agent.concurrency("two").enter(2, null)) {
            Thread.currentThread().interrupt();
            check(agent.concurrency("two").enter().reply().quota()
                      .equals("two"),
                  "an answer");
            check(Thread.interrupted(), "it is told afterwards");
            check(permit.passed(), permit.reply());
            check(!agent.concurrency("two").enter().passed(),
                  "it is still held");
        }
    }

    void testNobodyThere() throws IOException {
        // A port without a listener that no other process can get.
        try (Socket silent = new Socket()) {
            silent.bind(new InetSocketAddress(
                InetAddress.getLoopbackAddress(), 0));
            String nowhere = ":" + silent.getLocalPort();
            try (Agent agent = new Agent(nowhere);
                 Permit permit = agent.concurrency("two").enter()) {
                Reply reply = agent.rate("three").ask(1);
                check(reply.passed() && reply.away(), reply);
                check(permit.passed() && permit.reply().away(),
                      permit.reply());
            }
            try (Agent agent = new Agent(
                     nowhere,
                     Agent.Options.usual().withPassWhenAway(false))) {
                check(!agent.rate("three").take(), "closed");
            }
        }
    }

    /** Each call looks the host up again, and none throws. */
    void testAHostThatIsUnknown() {
        try (Agent agent = new Agent("no.such.host.invalid:1", patient)) {
            for (int i = 0; i < 3; i++)
                check(agent.rate("three").ask(1).away(), "nobody is there");
        }
    }

    // ---- A slow agent, made by this test ----

    private static String readRequest(Socket from) throws IOException {
        StringBuilder text = new StringBuilder();
        int length = 0;
        for (int at = -1; at < 0 || text.length() < at + 4 + length;
             at = text.indexOf("\r\n\r\n")) {
            int c = from.getInputStream().read();
            if (c < 0)
                throw new IOException("it has gone after: " + text);
            text.append((char) c);
            int said = text.indexOf("Content-Length: ");
            if (text.toString().endsWith("\r\n\r\n") && said >= 0)
                length = Integer.parseInt(
                    text.substring(said + 16, text.indexOf("\r", said)));
        }
        return text.toString();
    }

    private static void answer(Socket to, String body) throws IOException {
        to.getOutputStream().write(("HTTP/1.1 200 OK\r\nContent-Length: " +
                                    body.length() + "\r\n\r\n" + body)
                                       .getBytes());
    }

    private static void expect(Socket from, String path, String what)
        throws IOException {
        String request = readRequest(from);
        check(request.startsWith("POST " + path) && request.contains(what),
              request);
    }

    private static Object read(Object object, String name) throws Exception {
        Field field = object.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(object);
    }

    /** Time limit of each call on the only connection for permits from now on:
     * one call of an agent must be too late, and the other calls not, on a
     * machine of any speed. */
    private static void setTimeout(Agent agent, Duration time)
        throws Exception {
        Object connection = ((Object[])read(agent, "permits"))[0];
        Field options = connection.getClass().getDeclaredField("options");
        options.setAccessible(true);
        options.set(connection, Agent.Options.usual().withTimeout(time));
    }

    /** Other permits stay, and the permit of a late answer is left. */
    void testAnEnterThatIsLate() throws Exception {
        try (ServerSocket server = new ServerSocket(
                 0, 9, InetAddress.getLoopbackAddress())) {
            CountDownLatch late = new CountDownLatch(1);
            List<Throwable> wrong = new ArrayList<>();
            Thread slow = new Thread(() -> {
                try (Socket socket = server.accept()) {
                    expect(socket, "/v1/enter", "db");
                    answer(socket, "{\"verdict\":\"passed\",\"permit\":7}");
                    expect(socket, "/v1/enter", "db");
                    late.await();
                    answer(socket, "{\"verdict\":\"passed\",\"permit\":8}");
                    expect(socket, "/v1/leave", "\"permit\":7");
                    answer(socket, "{}");
                    expect(socket, "/v1/leave", "\"permit\":8");
                    answer(socket, "{}");
                    expect(socket, "/v1/enter", "db");
                    answer(socket, "{\"verdict\":\"passed\",\"permit\":9}");
                } catch (Throwable told) {
                    wrong.add(told);
                }
            });
            slow.start();
            try (Agent agent = new Agent(":" + server.getLocalPort(),
                                         patient.withConnections(1))) {
                Permit first = agent.concurrency("db").enter();
                check(first.passed() && !first.reply().away(), first.reply());
                setTimeout(agent, Duration.ofMillis(50));
                check(agent.concurrency("db").enter().reply().away(),
                      "too late");
                setTimeout(agent, PATIENCE);
                late.countDown();
                first.close();
                Permit third = agent.concurrency("db").enter();
                check(third.passed() && !third.reply().away(), third.reply());
            }
            slow.join();
            check(wrong.isEmpty(), wrong);
        }
    }

    /** Interrupted while it waits, a call waits on. */
    void testInterruptedWhileItWaits() throws Exception {
        try (ServerSocket server = new ServerSocket(
                 0, 9, InetAddress.getLoopbackAddress())) {
            Thread caller = Thread.currentThread();
            List<Throwable> wrong = new ArrayList<>();
            Thread slow = new Thread(() -> {
                try (Socket socket = server.accept()) {
                    expect(socket, "/v1/take", "three");
                    caller.interrupt();
                    // An answer that is there already would be read without
                    // waiting. A call that gave up at the interrupt would have
                    // ended.
                    while (caller.isInterrupted() && caller.isAlive())
                        Thread.onSpinWait();
                    answer(socket, "{\"verdict\":\"limited\"}");
                } catch (Throwable told) {
                    wrong.add(told);
                }
            });
            slow.start();
            try (Agent agent = new Agent(":" + server.getLocalPort(),
                                         patient)) {
                Reply reply = agent.rate("three").ask(1);
                check(Thread.interrupted(), "it is told afterwards");
                check(!reply.away() && !reply.passed(), reply);
            }
            slow.join();
            check(wrong.isEmpty(), wrong);
        }
    }

    void testNoAgent() throws IOException, InterruptedException {
        try (ServerSocket server = new ServerSocket(
                 0, 9, InetAddress.getLoopbackAddress())) {
            String there = ":" + server.getLocalPort();
            // An agent that never answers, and one with another protocol.
            try (Agent agent = new Agent(there, Agent.Options.usual()
                     .withTimeout(Duration.ofMillis(50)))) {
                check(agent.rate("three").ask(1).away(), "silence");
            }
            Thread other = new Thread(() -> {
                try (Socket first = server.accept();
                     Socket second = server.accept()) {
                    second.getOutputStream().write("220 hi\r\n\r\n".getBytes());
                } catch (IOException unused) {
                    return;
                }
            });
            other.start();
            try (Agent agent = new Agent(there, patient)) {
                check(agent.rate("three").ask(1).away(), "another protocol");
            }
            other.join();
        }
    }

    public static void main(String[] arguments) throws Exception {
        WeirTest test = new WeirTest(arguments[0], arguments[1]);
        int count = 0;
        for (Method method : WeirTest.class.getDeclaredMethods()) {
            if (!method.getName().startsWith("test"))
                continue;
            method.invoke(test);
            count++;
        }
        System.out.println(count + " tests passed");
    }
}
