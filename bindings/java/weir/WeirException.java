// SPDX-License-Identifier: MIT
// WeirException.java - the agent refused a request as invalid.

package weir;

/** The agent's reason: an invalid name, or an unknown token. An unreachable
 * agent is no exception: see {@link Reply#away()}. */
public final class WeirException extends RuntimeException {
    private static final long serialVersionUID = 1;
    private final int status;

    WeirException(int status, String detail) {
        super(detail);
        this.status = status;
    }

    /** The HTTP status. */
    public int status() {
        return status;
    }
}
