// SPDX-License-Identifier: MIT
// Json.java - the JSON of the agent's answers: objects of texts, whole numbers,
// booleans, and lists, which are skipped.

package weir;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

final class Json {
    private static final int NAME_MAX = 8192; // bytes; escaped, in a body

    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    // ---- Writing ----

    static String quote(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\')
                out.append('\\').append(c);
            else if (c < ' ')
                out.append(String.format("\\u%04x", (int) c));
            else
                out.append(c);
        }
        return out.append('"').toString();
    }

    static String ask(String name, long weight, String more) {
        return "{\"name\":" + name(name) + ",\"weight\":" + weight +
               (more == null ? "" : "," + more) + "}";
    }

    static String settle(String name, long charged, long actual) {
        return "{\"name\":" + name(name) + ",\"charged\":" + charged +
               ",\"actual\":" + actual + "}";
    }

    /** A request over its bounds makes the agent end the connection, with all
     * permits of it, so it isn't sent. */
    private static String name(String name) {
        if (name.getBytes(StandardCharsets.UTF_8).length > NAME_MAX)
            throw new WeirException(400, "a quota's name has at most " +
                                             NAME_MAX + " bytes");
        return quote(name);
    }

    // ---- Reading ----

    /** Empty if the text is no object. */
    @SuppressWarnings("unchecked")
    static Map<String, Object> object(String text) {
        try {
            Object value = new Json(text).value();
            return value instanceof Map ? (Map<String, Object>) value
                                        : Map.of();
        } catch (RuntimeException broken) {
            return Map.of();
        }
    }

    private char peek() {
        while (Character.isWhitespace(text.charAt(at)))
            at++;
        return text.charAt(at);
    }

    private boolean skip(char wanted) {
        if (peek() != wanted)
            return false;
        at++;
        return true;
    }

    private Object value() {
        switch (peek()) {
        case '{':
            return members();
        case '[':
            return items();
        case '"':
            return string();
        default:
            return word();
        }
    }

    private Map<String, Object> members() {
        Map<String, Object> out = new HashMap<>();
        at++;
        while (!skip('}')) {
            String name = string();
            if (!skip(':'))
                throw new IllegalArgumentException();
            out.put(name, value());
            skip(',');
        }
        return out;
    }

    private List<Object> items() {
        List<Object> out = new ArrayList<>();
        at++;
        while (!skip(']')) {
            out.add(value());
            skip(',');
        }
        return out;
    }

    private String string() {
        StringBuilder out = new StringBuilder();
        if (!skip('"'))
            throw new IllegalArgumentException();
        for (;;) {
            char c = text.charAt(at++);
            if (c == '"')
                return out.toString();
            out.append(c == '\\' ? escaped() : c);
        }
    }

    private char escaped() {
        char c = text.charAt(at++);
        int known = "bfnrt".indexOf(c);
        if (known >= 0)
            return "\b\f\n\r\t".charAt(known);
        if (c != 'u')
            return c;
        at += 4;
        return (char) Integer.parseInt(text.substring(at - 4, at), 16);
    }

    private Object word() {
        int start = at;
        while (at < text.length() && ",]} \n".indexOf(text.charAt(at)) < 0)
            at++;
        String word = text.substring(start, at);
        if (word.equals("null"))
            return null;
        if (word.equals("true") || word.equals("false"))
            return Boolean.valueOf(word);
        return Long.valueOf(word);
    }
}
