// SPDX-License-Identifier: MIT
// Rate.java - a quota of kind rate.

package weir;

/** Units in a time: {@code if (!agent.rate("s3/put").take()) return 429;} */
public final class Rate {
    private final Agent agent;
    private final String name;

    Rate(Agent agent, String name) {
        this.agent = agent;
        this.name = name;
    }

    /** Charges one unit if it passes. */
    public boolean take() {
        return ask(1).passed();
    }

    /** Charges so many, all or none.
     * @param weight 0 to 2^32 */
    public boolean take(long weight) {
        return ask(weight).passed();
    }

    /** The same, with all details. */
    public Reply ask(long weight) {
        return agent.take(Json.ask(name, weight, null));
    }

    /** Charges so many without a decision: for a cost known afterwards.
     * @param units 0 to 2^40
     * @return units charged: 0 if no agent answers, or there is no quota */
    public long charge(long units) {
        return agent.settle("/v1/charge",
                            Json.ask(name, units, null)).charged(0);
    }

    /** For work that was begun with the units that it was expected to cost:
     * charges or gives back the difference to the actual ones. May be called
     * again while the work goes on.
     * @param charged units charged for the work so far, 0 to 2^40
     * @return units charged now: 'charged' if no agent answers, or there is no
     *     quota */
    public long settle(long charged, long actual) {
        return agent.settle("/v1/settle", Json.settle(name, charged, actual))
            .charged(charged);
    }

    /** Whether so many would pass; charges nothing. */
    public Reply peek(long weight) {
        return agent.take(Json.ask(name, weight, "\"peek\":true"));
    }
}
