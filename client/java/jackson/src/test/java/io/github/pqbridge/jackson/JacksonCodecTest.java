package io.github.pqbridge.jackson;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.fasterxml.jackson.annotation.JsonSubTypes;
import com.fasterxml.jackson.annotation.JsonTypeInfo;
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

    static class Animal {
        public String name = "Rex";
    }

    static final class Dog extends Animal {
        public boolean barks = true;
    }

    /** A value of a subclass is written whole, also where the type says which one it is. */
    @Test
    void subclassesAreWrittenWhole() {
        assertEquals("{\"barks\":true,\"name\":\"Rex\"}", text(JacksonCodec.of(Animal.class), new Dog()));
        assertEquals("{\"name\":\"Rex\"}", text(JacksonCodec.of(Animal.class), new Animal()));
        assertEquals("{\"kind\":\"circle\",\"radius\":2}", text(JacksonCodec.of(Shape.class), new Circle(2)));
        var shapes = JacksonCodec.of(new TypeReference<List<Shape>>() {}, JsonMapper.builder().build());
        assertEquals("[{\"kind\":\"circle\",\"radius\":2}]", text(shapes, List.of(new Circle(2))));
        assertEquals("{\"to\":\"eve\",\"number\":1}", text(JacksonCodec.of(Object.class), new Letter("eve", 1)));
    }

    @JsonTypeInfo(use = JsonTypeInfo.Id.NAME, property = "kind")
    @JsonSubTypes(@JsonSubTypes.Type(value = Circle.class, name = "circle"))
    interface Shape {}

    record Circle(int radius) implements Shape {}

    private static <T> String text(Codec<T> codec, T value) {
        return new String(codec.encode(value), StandardCharsets.UTF_8);
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
