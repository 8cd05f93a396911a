// SPDX-License-Identifier: MIT
// Permit.java - what an enter holds.

package weir;

/** Units that are held until {@link #close()}; or the refusal of them, which
 * holds nothing. Any one thread at a time. */
public final class Permit implements AutoCloseable {
    /** How it went, for a quota that finds its limit by it. */
    public enum Outcome {
        /** Served: its time in flight says something. */
        SUCCESS,
        /** Refused or timed out by what is overloaded. */
        DROPPED,
        /** Ended by something else: says nothing. */
        IGNORED
    }

    private final Reply reply;
    private Outcome outcome = Outcome.SUCCESS;
    private boolean left;

    Permit(Reply reply) {
        this.reply = reply;
        this.left = !reply.passed() || reply.permit() == 0;
    }

    public boolean passed() {
        return reply.passed();
    }

    public Reply reply() {
        return reply;
    }

    /** What {@link #close()} says; SUCCESS unless told. */
    public void outcome(Outcome how) {
        outcome = how;
    }

    /** Gives the units back, once. Never fails: where the agent has gone, or
     * the connection has ended, they are free already. */
    @Override
    public void close() {
        if (left)
            return;
        left = true;
        reply.connection.leave(reply.permit(), reply.life,
                               outcome.name().toLowerCase(
                                   java.util.Locale.ROOT));
    }
}
