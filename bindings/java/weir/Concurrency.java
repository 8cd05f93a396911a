// SPDX-License-Identifier: MIT
// Concurrency.java - a quota of kind concurrency.

package weir;

/** Units in flight, each with a permit: <pre>{@code try (Permit permit =
 * db.enter()) {
 *     if (!permit.passed())
 *         return 503;
 *     ...
 * }
 * }</pre> */
public final class Concurrency {
    private final Agent agent;
    private final String name;

    Concurrency(Agent agent, String name) {
        this.agent = agent;
        this.name = name;
    }

    /** Requests a permit for one unit. */
    public Permit enter() {
        return enter(1, null);
    }

    /** So many units, all or none. @param weight 0 to 2^32 @param klass a class
     * of an adaptive quota, or null */
    public Permit enter(long weight, String klass) {
        String more = klass == null ? null : "\"class\":" + Json.quote(klass);
        return new Permit(agent.enter(Json.ask(name, weight, more)));
    }
}
