package io.github.pqbridge.jackson;

import io.github.pqbridge.BadArgumentException;
import io.github.pqbridge.Codec;
import tools.jackson.core.JacksonException;
import tools.jackson.core.type.TypeReference;
import tools.jackson.databind.JavaType;
import tools.jackson.databind.ObjectMapper;
import tools.jackson.databind.ObjectWriter;
import tools.jackson.databind.json.JsonMapper;

/**
 * Values in JSON.
 *
 * <pre>{@code
 * Codec<Letter> letters = JacksonCodec.of(Letter.class);
 * jobs.push(Push.of(new Letter("eve"), letters));
 * Letter letter = item.value(letters);
 * }</pre>
 *
 * @param <T> the type of the values
 */
public final class JacksonCodec<T> implements Codec<T> {
    private static final ObjectMapper MAPPER = JsonMapper.builder().build();

    private final ObjectMapper mapper;
    private final JavaType type;

    private JacksonCodec(ObjectMapper mapper, JavaType type) {
        this.mapper = mapper;
        this.type = type;
    }

    /**
     * Returns a codec with the defaults of Jackson.
     *
     * @param <T> the type of the values
     * @param type their class
     * @return the codec
     */
    public static <T> Codec<T> of(Class<T> type) {
        return of(type, MAPPER);
    }

    /**
     * Returns a codec with a mapper.
     *
     * @param <T> the type of the values
     * @param type their class
     * @param mapper the mapper
     * @return the codec
     */
    public static <T> Codec<T> of(Class<T> type, ObjectMapper mapper) {
        return new JacksonCodec<>(mapper, mapper.constructType(type));
    }

    /**
     * Returns a codec for a type with parameters, such as {@code new TypeReference<List<Letter>>() {}}.
     *
     * @param <T> the type of the values
     * @param type their type
     * @param mapper the mapper
     * @return the codec
     */
    public static <T> Codec<T> of(TypeReference<T> type, ObjectMapper mapper) {
        return new JacksonCodec<>(mapper, mapper.constructType(type));
    }

    @Override
    public String contentType() {
        return "application/json";
    }

    /**
     * Returns the JSON of a value.
     *
     * @throws BadArgumentException if it cannot be written
     */
    @Override
    public byte[] encode(T value) {
        try {
            return writer(value).writeValueAsBytes(value);
        } catch (JacksonException e) {
            var wrong = new BadArgumentException("a " + type + " cannot be written: " + e.getMessage());
            wrong.initCause(e);
            throw wrong;
        }
    }

    /** Returns a writer of all that a value has. The one of a class leaves out what subclasses add. */
    private ObjectWriter writer(T value) {
        boolean open = !type.isConcrete() || type.isContainerType() || type.isJavaLangObject();
        boolean whole = open || value == null || type.hasRawClass(value.getClass());
        return whole ? mapper.writerFor(type) : mapper.writer();
    }

    @Override
    public T decode(byte[] bytes) {
        return mapper.readValue(bytes, type);
    }
}
