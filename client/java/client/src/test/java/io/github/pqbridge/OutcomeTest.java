package io.github.pqbridge;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import org.junit.jupiter.api.Test;

/** What becomes of jobs, without NATS. */
class OutcomeTest {
    private static Outcome of(Throwable thrown) {
        return Outcome.of(job -> {
            throw (Exception) thrown;
        }, Push.of(""));
    }

    /** A handler that returns has done its job; what it is given is what was pushed. */
    @Test
    void handlerIsTested() {
        Outcome outcome = Outcome.of(job -> {
            assertEquals("hello", job.text());
            assertEquals("größer", job.type());
            assertEquals("Müller", job.group());
            assertArrayEquals(new byte[] {1}, job.headers().get("X-Byte").getBytes());
            job.progress("half", Codec.TEXT);
            job.result("done", Codec.TEXT);
        }, Push.of("hello").type("größer").group("Müller").header("X-Byte", "\u0001"));
        assertEquals(Outcome.Kind.DONE, outcome.kind());
    }

    /** What a handler throws says what becomes of its job. */
    @Test
    void exceptionsDecide() {
        assertEquals(Outcome.Kind.FAILED, of(new IOException("disk full")).kind());
        assertEquals(Outcome.Kind.DROPPED, of(new Drop("no such user")).kind());
        assertEquals("no such user", of(new Drop("no such user")).text());

        Outcome snoozed = of(new Snooze(Duration.ofHours(1)));
        assertEquals(Outcome.Kind.SNOOZED, snoozed.kind());
        assertEquals(Duration.ofHours(1), snoozed.delay());

        Outcome retried = of(new RetryAfter(Duration.ofHours(2), new IOException("no such host")));
        assertEquals(Outcome.Kind.FAILED, retried.kind());
        assertEquals(Duration.ofHours(2), retried.delay());
        assertEquals("IOException: no such host", retried.text());
    }

    /** The reason names the class of an exception unless that says nothing, and each cause once. */
    @Test
    void reasonsHaveCauses() {
        assertEquals("disk full", of(new Exception("disk full")).text());
        assertEquals("IllegalStateException", of(new IllegalStateException()).text());
        Throwable cause = new IOException("disk full");
        assertEquals("cannot print: IOException: disk full", of(new Exception("cannot print", cause)).text());
        assertEquals("java.io.IOException: disk full", of(new RuntimeException(cause)).text());
        assertEquals("NullPointerException: a", of(new NullPointerException("a")).text());
    }

    /** An exception whose text cannot be had, and one that is its own distant cause, are reasons too. */
    @Test
    void oddExceptionsAreReasons() {
        class Odd extends Exception {
            @Override
            public String getMessage() {
                throw new IllegalStateException();
            }
        }
        assertEquals("Odd", of(new Odd()).text());
        assertEquals("IOException: full", of(new IOException("full") {}).text());
        assertEquals("IOException", of(new IOException() {}).text());
        assertEquals("full", of(new Exception("full") {}).text());
        assertEquals("Odd", of(new Odd() {}).text());
        assertEquals("IOException: full", of(new IOException("full") {
            @Override
            public synchronized Throwable getCause() {
                throw new IllegalStateException();
            }
        }).text());

        Exception first = new Exception("a");
        first.initCause(new Exception("b", first));
        assertTrue(of(first).text().startsWith("a: b: a"));
    }

    /** What cannot be sent is refused where it is said. */
    @Test
    void argumentsAreChecked() {
        assertThrows(BadArgumentException.class, () -> new Snooze(Duration.ofSeconds(-1)));
        assertThrows(BadArgumentException.class, () -> new Snooze(null));
        assertThrows(BadArgumentException.class, () -> new RetryAfter(Duration.ofDays(3651), ""));
        assertThrows(BadArgumentException.class, () -> new Drop(null));
        Outcome outcome = Outcome.of(job -> job.progress(new byte[1025]), Push.of(""));
        assertEquals("BadArgumentException: progress of 1025 bytes: want 1 to 1024 (400)", outcome.text());
    }
}
