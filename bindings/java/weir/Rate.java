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

    /** Whether so many would pass; charges nothing. */
    public Reply peek(long weight) {
        return agent.take(Json.ask(name, weight, "\"peek\":true"));
    }
}
