// SPDX-License-Identifier: MIT
// Permit.java - the result of an enter.

package weir;

/** Units in flight until {@link #close()}; or their refusal, which has none.
 * Used by one thread at a time. */
public final class Permit implements AutoCloseable {
    /** A request's outcome, for a quota that adapts its limit to outcomes. */
    public enum Outcome {
        /** Served: its time in flight is a sample. */
        SUCCESS,
        /** Refused or timed out by the overloaded service. */
        DROPPED,
        /** Ended for another reason: no sample. */
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

    /** The outcome at {@link #close()}; SUCCESS by default. */
    public void outcome(Outcome how) {
        outcome = how;
    }

    /** Gives the units back, once. Never fails: if the agent has gone, or the
     * connection has ended, they are free already. */
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
