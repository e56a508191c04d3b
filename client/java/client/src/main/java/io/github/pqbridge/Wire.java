package io.github.pqbridge;

import java.io.ByteArrayOutputStream;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharsetDecoder;
import java.nio.charset.CoderResult;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Names, texts, durations and frames as the protocol has them. */
final class Wire {
    static final Duration TEN_YEARS = Duration.ofDays(3650);
    static final int MAX_HOLDER = 128; // bytes
    static final int FRAME_HEAD = 16; // the priority and two lengths

    private static final Pattern QUEUE = Pattern.compile("[A-Za-z0-9_-]{1,128}");
    private static final Pattern HEADER = Pattern.compile("[!#$%&'*+.^_`|~0-9A-Za-z-]+");
    private static final Pattern VALUE = // other halves of pairs are bytes
            Pattern.compile("[^\r\n\\x{D800}-\\x{DC7F}\\x{DD00}-\\x{DFFF}]*");
    private static final Pattern HALF = Pattern.compile("\\p{Cs}"); // of a pair
    private static final Pattern PART = Pattern.compile("([0-9]+(?:\\.[0-9]+)?)(ns|us|ms|s|m|h)");
    private static final Map<String, Duration> UNITS = Map.of(
            "ns", Duration.ofNanos(1), "us", Duration.ofNanos(1000), "ms", Duration.ofMillis(1),
            "s", Duration.ofSeconds(1), "m", Duration.ofMinutes(1), "h", Duration.ofHours(1));
    private static final Pattern TOKEN = Pattern.compile("(\\.ack\\.)[^. ]+");
    private static final Instant LATEST = Instant.parse("9999-12-31T23:59:59Z");
    private static final byte[] START = "NATS/1.0\r\n".getBytes(StandardCharsets.US_ASCII);

    private Wire() {}

    /** Returns a value, unless it is null. */
    static <T> T required(String what, T value) {
        if (value == null) {
            throw new BadArgumentException(what + " is null: want one");
        }
        return value;
    }

    static String checkQueue(String name) {
        if (name == null || !QUEUE.matcher(name).matches()) {
            throw new BadArgumentException(
                    "bad queue name " + shown(name) + ": want 1 to 128 letters, digits, - and _");
        }
        return name;
    }

    /** Returns a text that JSON and UTF-8 can carry. */
    static String checkText(String what, String text) {
        if (!isAscii(required(what, text)) && HALF.matcher(text).find()) {
            throw new BadArgumentException(what + " " + shown(text) + ": half of a surrogate pair; want text");
        }
        return text;
    }

    static String checkHolder(String what, String name) {
        int size = checkText(what, name).getBytes(StandardCharsets.UTF_8).length;
        if (size > MAX_HOLDER) {
            throw new BadArgumentException(what + " of " + size + " bytes: want up to " + MAX_HOLDER);
        }
        if (name.chars().anyMatch(Character::isISOControl)) {
            throw new BadArgumentException(what + " " + shown(name) + ": want text without control characters");
        }
        return name;
    }

    static String checkHeaderName(String name) {
        if (name == null || !HEADER.matcher(name).matches()) {
            throw new BadArgumentException(
                    "header " + shown(name) + ": want a name of letters, digits and any of !#$%&'*+-.^_`|~");
        }
        return name;
    }

    /** Returns the value of a header without blanks around it, unless NATS cannot carry it. */
    static String checkHeaderValue(String name, String value) {
        if (!VALUE.matcher(required("header " + name, value)).matches()) {
            throw new BadArgumentException("header " + name + ": " + shown(value)
                    + ": want a value in one line, without halves of surrogate pairs");
        }
        return withoutBlanks(value, 0, value.length());
    }

    /** Returns a part of a text without blanks around it. */
    private static String withoutBlanks(String text, int from, int to) {
        int first = from;
        int end = to;
        while (first < end && isBlank(text.charAt(first))) {
            first++;
        }
        while (first < end && isBlank(text.charAt(end - 1))) {
            end--;
        }
        return text.substring(first, end);
    }

    private static boolean isBlank(char c) { return c == ' ' || c == '\t'; }

    /** Returns a text for a message of an exception. */
    static String shown(String text) {
        return text == null ? "null" : '"' + (text.length() > 100 ? text.substring(0, 100) + "..." : text) + '"';
    }

    /** Returns a subject without the token of a lease, which would let its reader acknowledge. */
    static String hideTokens(String subject) { return TOKEN.matcher(subject).replaceAll("$1..."); }

    // Durations and times

    static Duration checkDuration(String what, Duration d, Duration least, Duration most) {
        required(what, d);
        if (d.compareTo(least) < 0 || d.compareTo(most) > 0) {
            throw new BadArgumentException(what + " " + d + ": want " + least + " to " + most);
        }
        return d;
    }

    /** Returns a duration as requests have it. */
    static String durationText(String what, Duration d) {
        return checkDuration(what, d, Duration.ZERO, TEN_YEARS).toNanos() + "ns";
    }

    static Duration parseDuration(String text) {
        BigDecimal nanos = BigDecimal.ZERO;
        Matcher part = PART.matcher(text);
        int at = 0;
        for (; part.find() && part.start() == at; at = part.end()) {
            BigDecimal unit = BigDecimal.valueOf(UNITS.get(part.group(2)).toNanos());
            nanos = nanos.add(new BigDecimal(part.group(1)).multiply(unit));
        }
        if (!text.equals("0") && (at == 0 || at != text.length())) {
            throw new BadReplyException("not a duration: " + shown(text));
        }
        return Duration.ofNanos(nanos.longValue());
    }

    /** Returns a time in RFC 3339. */
    static String timeText(String what, Instant at) {
        if (required(what, at).isAfter(LATEST) || at.isBefore(Instant.EPOCH.minus(TEN_YEARS))) {
            throw new BadArgumentException(what + " " + at + ": want a time before the year 10000");
        }
        return at.toString();
    }

    // Bytes

    /** Returns text in UTF-8, in which some characters stand for bytes that are not: see {@link Header}. */
    static byte[] encode(String text) {
        ByteArrayOutputStream out = new ByteArrayOutputStream(text.length());
        int from = 0;
        for (Matcher odd = HALF.matcher(text); odd.find(); from = odd.end()) {
            out.writeBytes(text.substring(from, odd.start()).getBytes(StandardCharsets.UTF_8));
            out.write(text.charAt(odd.start()));
        }
        out.writeBytes(text.substring(from).getBytes(StandardCharsets.UTF_8));
        return out.toByteArray();
    }

    /** Returns the text of bytes in UTF-8, with a character for each that is not. */
    static String decode(byte[] bytes, int from, int to) {
        String text = new String(bytes, from, to - from, StandardCharsets.UTF_8);
        if (text.indexOf('\uFFFD') < 0) {
            return text;
        }
        CharsetDecoder decoder = StandardCharsets.UTF_8.newDecoder();
        ByteBuffer in = ByteBuffer.wrap(bytes, from, to - from);
        CharBuffer out = CharBuffer.allocate(to - from);
        for (CoderResult r = decoder.decode(in, out, true); r.isError(); r = decoder.decode(in, out, true)) {
            for (int i = 0; i < r.length(); i++) {
                out.put((char) (0xDC00 | in.get() & 0xFF));
            }
        }
        return out.flip().toString();
    }

    static boolean isAscii(String text) {
        for (int i = 0; i < text.length(); i++) {
            if (text.charAt(i) > 127) {
                return false;
            }
        }
        return true;
    }

    /** Reports whether jnats sends these headers. */
    static boolean arePlain(List<Header> headers) { return headers.stream().allMatch(h -> isAscii(h.value())); }

    /** Returns the bytes that headers need in a frame, and at most in a message. */
    static int blockSize(List<Header> headers) {
        int size = headers.isEmpty() ? 0 : START.length + 2;
        for (Header h : headers) {
            size += h.name().length() + 4 + (isAscii(h.value()) ? h.value().length() : h.bytes().length);
        }
        return size;
    }

    // Frames

    /** Returns the frame of an item or a result. */
    static byte[] frame(long priority, List<Header> headers, byte[] value) {
        int block = blockSize(headers);
        ByteBuffer frame = ByteBuffer.allocate(FRAME_HEAD + block + value.length);
        frame.putLong(priority).putInt(block).putInt(value.length);
        if (block > 0) {
            frame.put(START);
            for (Header h : headers) {
                frame.put(h.name().getBytes(StandardCharsets.US_ASCII)).put((byte) ':').put((byte) ' ');
                frame.put(h.bytes()).put((byte) '\r').put((byte) '\n');
            }
            frame.put((byte) '\r').put((byte) '\n');
        }
        return frame.put(value).array();
    }

    /** What a frame has. */
    record Frame(Headers headers, byte[] value) {}

    /** Returns what the frames of a reply have. */
    static List<Frame> parseFrames(byte[] data, int count) {
        List<Frame> frames = new ArrayList<>();
        ByteBuffer in = ByteBuffer.wrap(data);
        while (in.remaining() >= FRAME_HEAD) {
            in.getLong();
            int block = in.getInt();
            int value = in.getInt();
            if (block < 0 || value < 0 || in.remaining() - block < value) {
                break;
            }
            byte[] headers = new byte[block];
            byte[] payload = new byte[value];
            in.get(headers).get(payload);
            frames.add(new Frame(new Headers(headers), payload));
        }
        if (in.hasRemaining() || frames.size() != count) {
            throw new BadReplyException(frames.size() + " frames: want " + count);
        }
        return frames;
    }

    /** Returns the headers of a block, which may be empty. */
    static List<Header> parseBlock(byte[] block) {
        List<Header> headers = new ArrayList<>();
        String text = decode(block, Math.min(START.length, block.length), block.length);
        int from = 0;
        for (int end = text.indexOf("\r\n"); end >= 0; end = text.indexOf("\r\n", from)) {
            int colon = text.indexOf(':', from);
            if (from < colon && colon < end) {
                headers.add(new Header(text.substring(from, colon), withoutBlanks(text, colon + 1, end)));
            }
            from = end + 2;
        }
        return headers;
    }
}
