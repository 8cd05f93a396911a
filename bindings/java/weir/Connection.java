// SPDX-License-Identifier: MIT
// Connection.java - one connection to the agent, made anew after it has ended.
//
// Each connect begins another life, and a permit has the number of its life: in
// a later one it is invalid. A request sent on a connection that the agent had
// ended meanwhile (it ends silent ones) is sent once more on a new one, if not
// a byte was answered. At worst the agent died between deciding and answering,
// and a request is charged twice.
//
// A call without an answer in time doesn't end the other permits of the
// connection. The connection goes on, and the answer is owed: the next call
// reads it before its own, and a permit in it, which has no owner any more, is
// given back. The connection is ended only if it has no permits or too many
// answers are owed.

package weir;

import java.io.EOFException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.SocketTimeoutException;
import java.net.StandardSocketOptions;
import java.net.UnixDomainSocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.concurrent.locks.ReentrantLock;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

final class Connection {
    record Answer(int status, String body, long life) {}

    private static final int ANSWER_MAX = 256 << 10; // bytes
    private static final int OWED_MAX = 16;          // answers
    private static final String ENTER = "/v1/enter", LEAVE = "/v1/leave";
    private static final Pattern PERMIT =
        Pattern.compile("\"permit\": *(\\d+)");
    private static final Pattern LENGTH =
        Pattern.compile("\r\ncontent-length: *(\\d+)",
                        Pattern.CASE_INSENSITIVE);

    final ReentrantLock lock = new ReentrantLock(); // for all members below
    private final SocketAddress address;
    private final Agent.Options options;
    private SocketChannel channel; // null: not connected
    private Selector selector;
    private long life;
    private boolean closed;
    private int held; // permits in flight, in this life
    private boolean torn; // half a request was written
    private final ArrayDeque<String> owed = new ArrayDeque<>(); // paths of
                                                                // requests
    private ByteBuffer in = ByteBuffer.allocate(8 << 10);

    Connection(SocketAddress address, Agent.Options options) {
        this.address = address;
        this.options = options;
    }

    // ---- Life ----

    /** Looked up each time: a name may become known, or move. */
    private SocketAddress whereNow() throws UnknownHostException {
        if (!(address instanceof InetSocketAddress named))
            return address;
        return new InetSocketAddress(
            InetAddress.getByName(named.getHostString()), named.getPort());
    }

    private void open(long deadline) throws IOException {
        if (closed)
            throw new EOFException("the agent's client is closed");
        life++;
        held = 0;
        torn = false;
        owed.clear();
        in.clear();
        channel = address instanceof UnixDomainSocketAddress
                      ? SocketChannel.open(java.net.StandardProtocolFamily.UNIX)
                      : SocketChannel.open();
        selector = Selector.open();
        channel.configureBlocking(false);
        channel.register(selector, 0);
        if (!(address instanceof UnixDomainSocketAddress))
            channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
        if (!channel.connect(whereNow()))
            do
                await(SelectionKey.OP_CONNECT, deadline);
            while (!channel.finishConnect());
    }

    private void end() {
        try {
            if (channel != null)
                channel.close();
            if (selector != null)
                selector.close();
        } catch (IOException unused) {
            // It is gone either way.
        }
        channel = null;
        selector = null;
    }

    void close() {
        lock.lock();
        try {
            closed = true;
            end();
        } finally {
            lock.unlock();
        }
    }

    // ---- Bytes ----

    /** An interrupted thread doesn't wait in select(), which isn't the agent's
     * fault: it goes on waiting, and its interrupt flag is set afterwards. */
    private void await(int what, long deadline) throws IOException {
        boolean interrupted = false;
        channel.keyFor(selector).interestOps(what);
        try {
            for (int ready = 0; ready == 0;) {
                interrupted |= Thread.interrupted();
                long rest = deadline - System.nanoTime();
                if (rest <= 0)
                    throw new SocketTimeoutException("no answer in time");
                ready = selector.select(1 + rest / 1_000_000);
            }
        } finally {
            if (interrupted)
                Thread.currentThread().interrupt();
        }
        selector.selectedKeys().clear();
    }

    private void write(ByteBuffer out, long deadline) throws IOException {
        torn = true;
        while (channel.write(out) >= 0 && out.hasRemaining())
            await(SelectionKey.OP_WRITE, deadline);
        torn = false;
    }

    private void readMore(long deadline) throws IOException {
        if (!in.hasRemaining()) {
            if (in.capacity() >= ANSWER_MAX)
                throw new IOException("the agent's answer is too long");
            in = ByteBuffer.allocate(2 * in.capacity()).put(in.flip());
        }
        int got;
        while ((got = channel.read(in)) == 0)
            await(SelectionKey.OP_READ, deadline);
        if (got < 0)
            throw new EOFException("the agent has gone");
    }

    private String soFar() {
        return new String(in.array(), 0, in.position(),
                          StandardCharsets.ISO_8859_1);
    }

    private Answer read(long deadline) throws IOException {
        int head;
        while ((head = soFar().indexOf("\r\n\r\n")) < 0)
            readMore(deadline);
        String said = soFar().substring(0, head);
        Matcher length = LENGTH.matcher(said);
        if (!said.startsWith("HTTP/1.1 ") || !length.find())
            throw new IOException("this is no agent");
        int start = head + 4;
        int end = start + Integer.parseInt(length.group(1));
        while (in.position() < end)
            readMore(deadline);
        Answer answer = new Answer(Integer.parseInt(said.substring(9, 12)),
                                   new String(in.array(), start, end - start,
                                              StandardCharsets.UTF_8),
                                   life);
        in.flip().position(end);
        in.compact(); // the rest belongs to the next answer
        return answer;
    }

    // ---- Calls; under the lock ----

    private ByteBuffer request(String path, String body) {
        byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
        String token = options.token() == null
                           ? ""
                           : "Authorization: Bearer " + options.token() +
                                 "\r\n";
        byte[] head = ("POST " + path + " HTTP/1.1\r\nHost: localhost\r\n" +
                       token + "Content-Type: application/json\r\n" +
                       "Content-Length: " + bytes.length +
                       "\r\n\r\n").getBytes(StandardCharsets.ISO_8859_1);
        return ByteBuffer.allocate(head.length + bytes.length)
            .put(head).put(bytes).flip();
    }

    private static long permitOf(Answer answer) {
        Matcher permit = PERMIT.matcher(answer.body());
        return permit.find() ? Long.parseLong(permit.group(1)) : 0;
    }

    private ByteBuffer leaving(long permit, String outcome) {
        return request(LEAVE, "{\"permit\":" + permit + ",\"outcome\":\"" +
                                  outcome + "\"}");
    }

    private void send(String path, ByteBuffer out, long deadline)
        throws IOException {
        write(out, deadline);
        owed.add(path);
    }

    /** Reads the answer of a call that was given up. */
    private void settle(long deadline) throws IOException {
        Answer answer = read(deadline);
        long permit = owed.remove().equals(ENTER) ? permitOf(answer) : 0;
        if (permit != 0)
            send(LEAVE, leaving(permit, "ignored"), deadline);
    }

    private Answer exchange(String path, ByteBuffer out) throws IOException {
        long deadline = System.nanoTime() + options.timeout().toNanos();
        if (channel == null)
            open(deadline);
        int before = owed.size();
        send(path, out, deadline);
        for (; before > 0; before--)
            settle(deadline);
        Answer answer = read(deadline);
        if (owed.remove().equals(ENTER) && permitOf(answer) != 0)
            held++;
        return answer;
    }

    /** After a call without an answer: whether it may come later. */
    private boolean goesOn() {
        return channel != null && held > 0 && !torn && owed.size() < OWED_MAX;
    }

    /** An interrupted thread would end the connection by touching it; its
     * interrupt flag is cleared during the call, and set afterwards. */
    Answer call(String path, String body) throws IOException {
        boolean interrupted = Thread.interrupted();
        try {
            return twice(path, request(path, body));
        } finally {
            if (interrupted)
                Thread.currentThread().interrupt();
        }
    }

    private Answer once(String path, ByteBuffer out) throws IOException {
        try {
            return exchange(path, out);
        } catch (SocketTimeoutException late) {
            if (!goesOn())
                end();
            throw late;
        } catch (IOException gone) {
            end();
            throw gone;
        } catch (RuntimeException odd) {
            // Channels throw this for an address that they can't use. A
            // half-made connection would fail every later call.
            end();
            throw new IOException(odd);
        }
    }

    private Answer twice(String path, ByteBuffer out) throws IOException {
        boolean idle = channel != null && owed.isEmpty();
        try {
            return once(path, out);
        } catch (SocketTimeoutException late) {
            throw late;
        } catch (IOException first) {
            if (!idle || in.position() > 0)
                throw first;
        }
        return once(path, out.rewind());
    }

    void leave(long permit, long when, String outcome) {
        boolean interrupted = Thread.interrupted();
        lock.lock();
        try {
            if (channel == null || life != when)
                return;
            held--;
            once(LEAVE, leaving(permit, outcome));
        } catch (IOException gone) {
            // The agent does it when the connection ends, or reads on.
        } finally {
            lock.unlock();
            if (interrupted)
                Thread.currentThread().interrupt();
        }
    }
}
