// SPDX-License-Identifier: MIT
// Holder.java - keeps two units in flight until it is killed; for live_java.py.

import java.io.IOException;
import java.time.Duration;
import weir.Agent;

public final class Holder {
    public static void main(String[] arguments) throws IOException {
        // If the agent is too slow to answer, no unit is in flight.
        Agent agent = new Agent(
            arguments[0],
            Agent.Options.usual().withTimeout(Duration.ofMinutes(1)));
        System.out.println(
            agent.concurrency(arguments[1]).enter(2, null).passed()
                ? "in flight" : "limited");
        System.in.read();
    }
}
