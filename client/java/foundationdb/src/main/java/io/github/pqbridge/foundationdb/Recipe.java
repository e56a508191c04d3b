package io.github.pqbridge.foundationdb;

import com.apple.foundationdb.KeyValue;
import com.apple.foundationdb.Transaction;
import com.apple.foundationdb.subspace.Subspace;
import com.apple.foundationdb.tuple.Tuple;
import java.security.SecureRandom;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/** What the two recipes share: items in the order of their keys, below one subspace. */
final class Recipe {
    private static final SecureRandom RANDOM = new SecureRandom();

    private final Subspace items;
    private final ValueFormat format;

    Recipe(Subspace items, ValueFormat format) {
        this.items = items;
        this.format = format;
    }

    /** Adds a value behind all others whose keys begin with {@code prefix}. */
    CompletableFuture<Void> push(Transaction tr, Tuple prefix, long first, byte[] value) {
        byte[] stored = encode(Objects.requireNonNull(value, "value"));
        Subspace within = items.get(prefix);

        // A snapshot read, so that pushes do not conflict. If two get the same number, the random
        // bytes keep their keys apart.
        var last = tr.snapshot().getRange(within.range(), 1, true).asList();
        return last.thenAccept(found -> {
            long next = first;
            for (KeyValue item : found) {
                next = within.unpack(item.getKey()).getLong(0) + 1;
            }
            byte[] random = new byte[20];
            RANDOM.nextBytes(random);
            tr.set(key(prefix, next, random), stored);
        });
    }

    /** Removes and returns the first value, or the last one. */
    CompletableFuture<Optional<byte[]>> pop(Transaction tr, boolean last) {
        return tr.getRange(items.range(), 1, last).asList().thenApply(found -> {
            found.forEach(item -> tr.clear(item.getKey()));
            return found.stream().findFirst().map(item -> decode(item.getValue()));
        });
    }

    byte[] key(Tuple prefix, long number, byte[] random) {
        return items.pack(prefix.add(number).add(random));
    }

    byte[] encode(byte[] value) {
        return format == ValueFormat.RAW ? value : Tuple.from(value).pack();
    }

    /** Decodes as a bridge does, which returns what is no such tuple as it is. */
    byte[] decode(byte[] stored) {
        try {
            Tuple tuple = format == ValueFormat.RAW ? new Tuple() : Tuple.fromBytes(stored);
            return tuple.size() == 1 && tuple.get(0) instanceof byte[] value ? value : stored;
        } catch (RuntimeException anotherFormat) {
            return stored;
        }
    }
}
