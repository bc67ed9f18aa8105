package modeaware;

import static modeaware.Json.require;

import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** What a JSON value of the mode log has to look like. */
interface Form {
    Form LONG = value -> cast(Long.class, value);
    Form TEXT = value -> cast(String.class, value);
    Form TEXTS = listOf(TEXT);

    /** Throws {@link Json.Malformed} where the value does not have this form. */
    void check(Object value);

    static Form optional(Form form) {
        return value -> {
            if (value != null) {
                form.check(value);
            }
        };
    }

    static Form listOf(Form form) {
        return value -> list(value).forEach(form::check);
    }

    static Form mapOf(Form form) {
        return value -> object(value).values().forEach(form::check);
    }

    /** An object: names and forms of its known fields in turn. A name ends in {@code !} where the field is required. */
    static Form objectOf(Object... namesAndForms) {
        Map<String, Form> known = known(namesAndForms);
        return value -> {
            Map<String, Object> found = object(value);
            known.forEach((each, form) -> {
                String name = each.replace("!", "");
                require(found.containsKey(name) || name.equals(each), "no field " + name);
                if (found.containsKey(name)) {
                    form.check(found.get(name));
                }
            });
        };
    }

    /**
     * Rows of one kind as columns. {@code partitions} has the numbers of the rows; a column is a list with a value for
     * each row, or the one value of all rows. Null is a field at its default.
     */
    static Form columnsOf(Object... namesAndForms) {
        Map<String, Form> known = known(namesAndForms);
        return value -> {
            Map<String, Object> found = object(value);
            int rows = Ranges.partitions(found).cardinality();
            known.forEach((name, form) -> {
                Object column = found.get(name);
                List<?> values = column instanceof List ? list(column) : Arrays.asList(new Object[rows]);
                require(values.size() == rows, "a column " + name + " of another length");
                values.stream().filter(Objects::nonNull).forEach(form::check);
                if (column != null && !(column instanceof List) && rows > 0) {
                    form.check(column);
                }
            });
        };
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> object(Object value) {
        return cast(Map.class, value);
    }

    static List<?> list(Object value) {
        return cast(List.class, value);
    }

    static <T> T cast(Class<T> kind, Object value) {
        require(kind.isInstance(value), "a value that is not a " + kind.getSimpleName());
        return kind.cast(value);
    }

    private static Map<String, Form> known(Object... namesAndForms) {
        Map<String, Form> known = new HashMap<>();
        for (int at = 0; at < namesAndForms.length; at += 2) {
            known.put((String) namesAndForms[at], (Form) namesAndForms[at + 1]);
        }
        return known;
    }
}
