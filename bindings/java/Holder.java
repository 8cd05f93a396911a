// SPDX-License-Identifier: MIT
// Holder.java - holds two units until it is killed; for live_java.py.

import java.io.IOException;
import weir.Agent;

public final class Holder {
    public static void main(String[] arguments) throws IOException {
        Agent agent = new Agent(arguments[0]);
        System.out.println(
            agent.gauge(arguments[1]).enter(2, null).passed() ? "held"
                                                              : "refused");
        System.in.read();
    }
}
