// SPDX-License-Identifier: MIT
// WeirException.java - the agent understood, and won't.

package weir;

/** What the agent says is wrong with a request: a name that can't be one, a
 * token that it doesn't know. Not that it can't be reached: see
 * {@link Reply#away()}. */
public final class WeirException extends RuntimeException {
    private static final long serialVersionUID = 1;
    private final int status;

    WeirException(int status, String detail) {
        super(detail);
        this.status = status;
    }

    /** HTTP's. */
    public int status() {
        return status;
    }
}
