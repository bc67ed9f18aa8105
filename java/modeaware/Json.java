package modeaware;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.common.errors.SerializationException;

/**
 * Reads one JSON text (RFC 8259) of bounded size and depth; kafka-clients brings no JSON library to an application.
 *
 * <p>A value is a Map, List, String, Long, Double, Boolean or null. An integer of more than 64 bits is a Double. The last
 * of equal keys counts.
 */
final class Json {
    static final int MAX_BYTES = 1 << 20;
    static final int MAX_DEPTH = 100;
    private static final int MAX_DIGITS = 4300; // of any number; Python limits only integers
    private static final Pattern WORD =
        Pattern.compile("true|false|null|-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?(?:[eE][-+]?[0-9]+)?");

    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /** Returns the value of a JSON text in UTF-8; throws {@link SerializationException}. */
    static Object parse(byte[] utf8) {
        require(utf8.length <= MAX_BYTES, "a value of more than " + MAX_BYTES + " bytes");
        Json json = new Json(decode(utf8) + '\0'); // an end that is no JSON
        Object found = json.value(MAX_DEPTH);
        require(json.next() == '\0' && json.at == json.text.length(), "text behind the JSON value");
        return found;
    }

    /** Returns the text of UTF-8 bytes; throws {@link SerializationException}. */
    static String decode(byte[] utf8) {
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(utf8)).toString();
        } catch (CharacterCodingException error) {
            throw new SerializationException("not UTF-8");
        }
    }

    static void require(boolean holds, String what) {
        if (!holds) {
            throw new SerializationException(what);
        }
    }

    private Object value(int depth) {
        require(depth > 0, "more than " + MAX_DEPTH + " levels");
        switch (next()) {
            case '{':
                Map<String, Object> object = new HashMap<>();
                items('}', () -> {
                    require(next() == '"', "no key in a JSON object");
                    String key = string();
                    require(next() == ':', "no colon in a JSON object");
                    object.put(key, value(depth - 1));
                });
                return object;
            case '[':
                List<Object> list = new ArrayList<>();
                items(']', () -> list.add(value(depth - 1)));
                return list;
            case '"':
                return string();
            default:
                at--;
                return word();
        }
    }

    private void items(char end, Runnable item) {
        char found = next();
        if (found != end) {
            at--;
            do {
                item.run();
                found = next();
            } while (found == ',');
        }
        require(found == end, "no comma or " + end + " at character " + (at - 1));
    }

    private String string() {
        StringBuilder found = new StringBuilder();
        for (char c = text.charAt(at++); c != '"'; c = text.charAt(at++)) {
            require(c >= ' ', "a control character in a JSON string, or no end of it");
            found.append(c == '\\' ? escaped(text.charAt(at++)) : c);
        }
        return found.toString();
    }

    private char escaped(char c) {
        int simple = "\"\\/bfnrt".indexOf(c);
        if (simple >= 0) {
            return "\"\\/\b\f\n\r\t".charAt(simple);
        }
        int end = Math.min(at + 4, text.length());
        String digits = text.substring(at, end);
        require(c == 'u' && digits.matches("[0-9a-fA-F]{4}"), "an invalid escape in a JSON string");
        at = end;
        return (char) Integer.parseInt(digits, 16);
    }

    /** Reads a number, or true, false or null. */
    private Object word() {
        Matcher found = WORD.matcher(text).region(at, text.length());
        require(found.lookingAt(), "no JSON value at character " + at);
        at = found.end();
        require(at - found.start() <= MAX_DIGITS, "a number of more than " + MAX_DIGITS + " characters");
        String word = found.group();
        if (word.equals("null")) {
            return null;
        }
        if (word.equals("true") || word.equals("false")) {
            return Boolean.valueOf(word);
        }
        try {
            return Long.valueOf(word);
        } catch (NumberFormatException error) {
            return Double.valueOf(word);
        }
    }

    /** Returns the next character that is not white space, and passes it. */
    private char next() {
        while (" \t\n\r".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        return text.charAt(at++);
    }
}
