package io.github.pqbridge.foundationdb;

import com.apple.foundationdb.tuple.ByteArrayUtil;
import com.apple.foundationdb.tuple.Tuple;
import io.github.pqbridge.testing.Program;
import io.nats.client.support.JsonParser;
import io.nats.client.support.JsonValue;
import java.io.IOException;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.List;

/** An item as the recipes store it with FoundationDB's bindings for Python and Java. */
record Vectors(
        long priority, long number, byte[] random, byte[] value, byte[] key,
        byte[] raw, byte[] tuple) {

    /** The items of one recipe, in the order of their keys. */
    static List<Vectors> of(String recipe) throws IOException {
        byte[] file = Files.readAllBytes(Program.inRepository("fdbpq/testdata/recipes.json"));
        JsonValue items = JsonParser.parse(file).map.get(recipe).map.get("items");
        return items.array.stream()
                .map(Vectors::read)
                .sorted(Comparator.comparing(Vectors::key, Arrays::compareUnsigned))
                .toList();
    }

    private static Vectors read(JsonValue item) {
        return new Vectors(
                item.map.containsKey("priority") ? number(item, "priority") : 0,
                number(item, item.map.containsKey("count") ? "count" : "index"),
                hex(item, "random"),
                hex(item, "value"),
                hex(item, "key"),
                hex(item, "stored_python"),
                hex(item, "stored_java"));
    }

    byte[] stored(ValueFormat format) {
        return format == ValueFormat.RAW ? raw : tuple;
    }

    /** The key in a store whose first element is another one. */
    byte[] keyBelow(String prefix, String root) {
        byte[] name = Tuple.from(root).pack();
        byte[] old = Tuple.from(prefix).pack();
        return ByteArrayUtil.join(name, Arrays.copyOfRange(key, old.length, key.length));
    }

    private static long number(JsonValue item, String member) {
        JsonValue value = item.map.get(member);
        return value.l != null ? value.l : value.i;
    }

    private static byte[] hex(JsonValue item, String member) {
        return HexFormat.of().parseHex(item.map.get(member).string);
    }
}
