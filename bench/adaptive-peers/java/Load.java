// SPDX-License-Identifier: MIT

import com.netflix.concurrency.limits.Limit;
import com.netflix.concurrency.limits.Limiter;
import com.netflix.concurrency.limits.limit.AIMDLimit;
import com.netflix.concurrency.limits.limit.Gradient2Limit;
import com.netflix.concurrency.limits.limit.VegasLimit;
import com.netflix.concurrency.limits.limit.WindowedLimit;
import com.netflix.concurrency.limits.limiter.SimpleLimiter;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Phaser;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/**
 * One client process of bench/adaptive-peers with a limiter of Netflix'
 * concurrency-limits; go/load/main.go describes the options and the output.
 */
public final class Load {
    private static final int TIMEOUT_MS = 2000; // of a caller

    private record Event(long arrivedNs, char outcome, long latencyNs,
                         long lateNs) {}

    private final Map<String, String> options;
    private final Limiter<Void> limiter;
    private final Client client;
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final List<Event> events = new ArrayList<>();
    private final Phaser running = new Phaser(1);
    private long start;

    private Load(Map<String, String> options) {
        this.options = options;
        limiter = SimpleLimiter.newBuilder().limit(limit()).build();
        client = new Client(URI.create(options.get("url")), TIMEOUT_MS);
    }

    private double number(String name) {
        return Double.parseDouble(options.get(name));
    }

    /** The library's defaults, but for the last peer's timeout. */
    private Limit limit() {
        String peer = options.get("peer");
        switch (peer) {
        case "vegas":
            return VegasLimit.newDefault();
        case "gradient2":
            return WindowedLimit.newBuilder()
                .build(Gradient2Limit.newDefault());
        case "aimd":
            return AIMDLimit.newBuilder().build();
        case "aimd-target":
            return AIMDLimit.newBuilder()
                .timeout((long) number("target-ms"), TimeUnit.MILLISECONDS)
                .minLimit(1).build();
        default:
            throw new IllegalArgumentException("unknown peer " + peer);
        }
    }

    private synchronized void record(Event event) {
        events.add(event);
    }

    private static void leave(Limiter.Listener permit, char outcome) {
        switch (outcome) {
        case 's' -> permit.onSuccess();
        case 't' -> permit.onDropped();
        default -> permit.onIgnore();
        }
    }

    private void arrive(long due) {
        long began = System.nanoTime();
        Optional<Limiter.Listener> permit = limiter.acquire(null);
        if (permit.isEmpty()) {
            record(new Event(due - start, 'd', 0, began - due));
            return;
        }
        running.register();
        threads.execute(() -> {
            char outcome = client.get();
            leave(permit.get(), outcome);
            record(new Event(due - start, outcome,
                             System.nanoTime() - began, began - due));
            running.arriveAndDeregister();
        });
    }

    private void run() {
        Random random = new Random((long) number("seed"));
        boolean poisson = options.get("arrivals").equals("poisson");
        double mean = 1e9 / number("rate");
        long end = start + (long) (number("seconds") * 1e9);
        long due = start + (long) (number("phase") * mean);
        while (due < end) {
            for (long left = due - System.nanoTime(); left > 0;
                 left = due - System.nanoTime())
                LockSupport.parkNanos(left);
            arrive(due);
            due += (long) (poisson
                ? mean * -Math.log(1 - random.nextDouble()) : mean);
        }
        running.arriveAndAwaitAdvance();
    }

    private synchronized void write() throws IOException {
        Path path = Path.of(options.get("out"));
        try (PrintWriter out = new PrintWriter(
                Files.newBufferedWriter(path, StandardCharsets.UTF_8))) {
            for (Event e : events)
                out.printf(Locale.ROOT, "%.2f %c %.2f %.2f%n",
                           e.arrivedNs / 1e6, e.outcome, e.latencyNs / 1e6,
                           e.lateNs / 1e6);
        }
    }

    /** Instants of System.nanoTime() and of the calendar, read together. */
    private static long fromCalendar(long ns) {
        Instant now = Instant.now();
        long nowNs = now.getEpochSecond() * 1_000_000_000L + now.getNano();
        return System.nanoTime() + ns - nowNs;
    }

    public static void main(String[] arguments) throws IOException {
        Map<String, String> options = new HashMap<>();
        for (int i = 0; i + 1 < arguments.length; i += 2)
            options.put(arguments[i].substring(1), arguments[i + 1]);
        Load load = new Load(options);
        System.out.println("ready");
        BufferedReader input = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        load.start = fromCalendar(Long.parseLong(input.readLine().trim()));
        load.run();
        load.write();
        System.exit(0);
    }
}
