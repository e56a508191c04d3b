package io.github.pqbridge.jackson;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.github.pqbridge.BadArgumentException;
import io.github.pqbridge.Codec;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.junit.jupiter.api.Test;
import tools.jackson.core.JacksonException;
import tools.jackson.core.type.TypeReference;
import tools.jackson.databind.json.JsonMapper;

class JacksonCodecTest {
    record Letter(String to, long number) {}

    static final class Endless {
        public Endless getSelf() { return this; }
    }

    /** Values come back as they were, with integers of any size, also in lists. */
    @Test
    void valuesComeBack() {
        Codec<Letter> letters = JacksonCodec.of(Letter.class);
        Letter letter = new Letter("Jürgen", Long.MAX_VALUE);
        byte[] json = letters.encode(letter);
        assertEquals("{\"to\":\"Jürgen\",\"number\":9223372036854775807}", new String(json, StandardCharsets.UTF_8));
        assertEquals(letter, letters.decode(json));
        assertEquals("application/json", letters.contentType());

        Codec<List<Letter>> lists = JacksonCodec.of(new TypeReference<List<Letter>>() {}, JsonMapper.builder().build());
        assertEquals(List.of(letter), lists.decode(lists.encode(List.of(letter))));
    }

    /** What cannot be written is refused before anything is sent; what cannot be read is Jackson's error. */
    @Test
    void faultsAreNamed() {
        Codec<Endless> endless = JacksonCodec.of(Endless.class);
        BadArgumentException e = assertThrows(BadArgumentException.class, () -> endless.encode(new Endless()));
        assertEquals(true, e.getCause() instanceof JacksonException);
        assertThrows(JacksonException.class, () -> JacksonCodec.of(Letter.class).decode(new byte[] {'x'}));
    }
}
