// SPDX-License-Identifier: MIT
// Reply.java - an answer of the agent.

package weir;

import java.time.Duration;
import java.util.Map;
import java.util.Optional;

/** A verdict and its details. */
public final class Reply {
    private final Map<String, Object> said;
    private final boolean passed, away;
    final Connection connection; // of the answer; null: no answer
    final long life;             // of the connection, at that time

    private Reply(Map<String, Object> said, boolean passed, boolean away,
                  Connection connection, long life) {
        this.said = said;
        this.passed = passed;
        this.away = away;
        this.connection = connection;
        this.life = life;
    }

    static Reply of(Map<String, Object> said, Connection on, long life) {
        return new Reply(said, "passed".equals(said.get("verdict")), false, on,
                         life);
    }

    static Reply away(boolean passed) {
        return new Reply(Map.of(), passed, true, null, 0);
    }

    public boolean passed() {
        return passed;
    }

    /** The quota of the chain that is nearest to its limit; "": none. */
    public String quota() {
        return (String) said.getOrDefault("quota", "");
    }

    /** Units that would still pass; empty: unknown, or no limit. */
    public Optional<Long> remaining() {
        return Optional.ofNullable((Long) said.get("remaining"));
    }

    /** When it may pass, if it was limited; empty: it passed, or never will. */
    public Optional<Duration> retryAfter() {
        return Optional.ofNullable((Long) said.get("retry_after_ms"))
            .map(Duration::ofMillis);
    }

    /** The weight is more than ever passes at once. */
    public boolean never() {
        return said.containsKey("never");
    }

    /** There is no quota of that name, so it passed. */
    public boolean unknown() {
        return said.containsKey("unknown");
    }

    /**
     * No root answers the agent: the quota's on_stale rules. Of a peek also:
     * no root has sent the agent the quota's fill yet, or its first grant.
     */
    public boolean stale() {
        return said.containsKey("stale");
    }

    /** Another thread had a lock of the quota: --when-locked has decided. */
    public boolean contended() {
        return said.containsKey("contended");
    }

    /** A quota in mode shadow would have limited. */
    public boolean shadow() {
        return said.containsKey("shadow");
    }

    /** No agent answered, and the verdict is that of the options. */
    public boolean away() {
        return away;
    }

    long charged(long otherwise) {
        return (Long) said.getOrDefault("charged", otherwise);
    }

    long permit() {
        return (Long) said.getOrDefault("permit", 0L);
    }

    @Override
    public String toString() {
        return away ? "away: " + (passed ? "passed" : "limited")
                    : said.toString();
    }
}
