// SPDX-License-Identifier: MIT
// Holder.java - holds two units until it is killed; for live_java.py.

import java.io.IOException;
import java.time.Duration;
import weir.Agent;

public final class Holder {
    public static void main(String[] arguments) throws IOException {
        // To an agent that is too slow for it, it would hold nothing.
        Agent agent = new Agent(
            arguments[0],
            Agent.Options.usual().withTimeout(Duration.ofMinutes(1)));
        System.out.println(
            agent.gauge(arguments[1]).enter(2, null).passed() ? "held"
                                                              : "refused");
        System.in.read();
    }
}
