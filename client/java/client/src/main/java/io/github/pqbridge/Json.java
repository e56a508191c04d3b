package io.github.pqbridge;

import io.nats.client.support.JsonParseException;
import io.nats.client.support.JsonParser;
import io.nats.client.support.JsonValue;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.format.DateTimeParseException;
import java.util.Base64;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** An object of a reply, and how requests write theirs. */
record Json(Map<String, JsonValue> members) {
    /** Reads the JSON object of a reply, which has that member unless it is "". */
    static Json read(byte[] data, String member) {
        JsonValue value = JsonValue.NULL;
        try {
            value = JsonParser.parse(new String(data, StandardCharsets.UTF_8));
        } catch (JsonParseException | RuntimeException e) {
            // it is not that of a bridge
        }
        boolean has = value.map != null && (member.isEmpty() || value.map.containsKey(member));
        if (!has || value.map.containsKey("seq") && !value.map.containsKey("queue")) { // a stream answers with seq
            String text = new String(data, 0, Math.min(64, data.length), StandardCharsets.UTF_8);
            throw new BadReplyException("not the reply of a bridge: " + Wire.shown(text));
        }
        return new Json(value.map);
    }

    boolean has(String name) { return members.containsKey(name); }

    String text(String name) {
        JsonValue value = members.get(name);
        return value == null || value.string == null ? "" : value.string;
    }

    long number(String name) {
        JsonValue value = members.get(name);
        return value == null || value.number == null ? 0 : value.number.longValue();
    }

    boolean flag(String name) {
        JsonValue value = members.get(name);
        return value != null && Boolean.TRUE.equals(value.bool);
    }

    Instant time(String name) { return parseTime(text(name)); }

    byte[] bytes(String name) { return decode(text(name)); }

    List<Json> objects(String name) {
        return values(name).stream().filter(v -> v.map != null).map(v -> new Json(v.map)).toList();
    }

    List<JsonValue> values(String name) {
        JsonValue value = members.get(name);
        return value == null || value.array == null ? List.of() : value.array;
    }

    /** Returns the object as collections: numbers are Long where they are integers. */
    @SuppressWarnings("unchecked")
    Map<String, Object> toMap() { return (Map<String, Object>) plain(new JsonValue(members)); }

    private static Object plain(JsonValue value) {
        if (value.map != null) {
            Map<String, Object> map = new TreeMap<>();
            value.map.forEach((name, member) -> map.put(name, plain(member)));
            return Collections.unmodifiableMap(map);
        }
        if (value.array != null) {
            return value.array.stream().map(Json::plain).toList();
        }
        return value.i != null ? Long.valueOf(value.i) : value.object;
    }

    static Instant parseTime(String text) {
        try {
            return text.isEmpty() ? null : Instant.parse(text);
        } catch (DateTimeParseException e) {
            throw new BadReplyException("not a time: " + Wire.shown(text));
        }
    }

    static byte[] decode(String base64) {
        try {
            return Base64.getDecoder().decode(base64);
        } catch (IllegalArgumentException e) {
            throw new BadReplyException("not base64: " + Wire.shown(base64));
        }
    }

    /** Returns a map in that order of names and values; null values are left out. */
    static Map<String, Object> of(Object... namesAndValues) {
        Map<String, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            if (namesAndValues[i + 1] != null) {
                map.put((String) namesAndValues[i], namesAndValues[i + 1]);
            }
        }
        return map;
    }

    static byte[] write(Object value) { return text(value).getBytes(StandardCharsets.US_ASCII); }

    /** Returns JSON in ASCII, which a header can carry. */
    static String text(Object value) {
        StringBuilder out = new StringBuilder();
        write(out, value);
        return out.toString();
    }

    private static void write(StringBuilder out, Object value) {
        String separator = "";
        if (value instanceof Map<?, ?> map) {
            out.append('{');
            for (Map.Entry<?, ?> member : map.entrySet()) {
                write(out.append(separator), member.getKey());
                write(out.append(':'), member.getValue());
                separator = ",";
            }
            out.append('}');
        } else if (value instanceof List<?> list) {
            out.append('[');
            for (Object one : list) {
                write(out.append(separator), one);
                separator = ",";
            }
            out.append(']');
        } else if (value instanceof String text) {
            quote(out, Wire.checkText("a text", text));
        } else {
            out.append(value);
        }
    }

    private static void quote(StringBuilder out, String text) {
        out.append('"');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c < ' ' || c > '~' || c == '"' || c == '\\') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}
