package io.github.pqbridge.foundationdb;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.apple.foundationdb.subspace.Subspace;
import com.apple.foundationdb.tuple.Tuple;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What needs no FoundationDB. */
class RecipeTest {
    /** Keys and values are the bytes that FoundationDB's own bindings make of the recipes. */
    @ParameterizedTest
    @EnumSource
    void keysAndValuesAreThoseOfTheRecipes(ValueFormat format) throws Exception {
        Recipe jobs = new Recipe(new Subspace(Tuple.from("pq", "jobs", "i")), format);
        for (Vectors item : Vectors.of("priority_queue")) {
            byte[] key = jobs.key(Tuple.from(item.priority()), item.number(), item.random());
            assertArrayEquals(item.key(), key);
            assertArrayEquals(item.stored(format), jobs.encode(item.value()));
            assertArrayEquals(item.value(), jobs.decode(item.stored(format)));
        }

        Recipe mail = new Recipe(new Subspace(Tuple.from("q", "mail", "i")), format);
        for (Vectors item : Vectors.of("queue")) {
            assertArrayEquals(item.key(), mail.key(new Tuple(), item.number(), item.random()));
            assertArrayEquals(item.stored(format), mail.encode(item.value()));
        }
    }

    /** What is no tuple of one byte string comes as it is stored, as it does from a bridge. */
    @Test
    void valuesOfAnotherFormatComeAsTheyAreStored() {
        Recipe recipe = new Recipe(new Subspace(), ValueFormat.TUPLE);
        for (byte[] stored :
                new byte[][] {
                    "no tuple".getBytes(StandardCharsets.UTF_8),
                    {},
                    Tuple.from("a text").pack(),
                    Tuple.from((Object) null).pack(),
                    Tuple.from(new byte[] {1}, new byte[] {2}).pack(),
                }) {
            assertArrayEquals(stored, recipe.decode(stored));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "a.b", "a b", "größe", "*", ">", "a\n"})
    void namesThatNoBridgeServesAreRefused(String name) {
        FdbQueues queues = new FdbQueues(ValueFormat.RAW);

        assertThrows(IllegalArgumentException.class, () -> queues.priorityQueue(name));
        assertThrows(IllegalArgumentException.class, () -> queues.fifoQueue(name));
        assertThrows(IllegalArgumentException.class, () -> queues.fifoQueue("x".repeat(129)));
    }

    @Test
    void nullsAreRefused() {
        FdbQueues queues = new FdbQueues(ValueFormat.TUPLE);

        assertThrows(NullPointerException.class, () -> new FdbQueues(null));
        assertThrows(NullPointerException.class, () -> queues.priorityQueue(null));
        assertThrows(NullPointerException.class, () -> queues.fifoQueue("mail").push(null, null));
    }
}
