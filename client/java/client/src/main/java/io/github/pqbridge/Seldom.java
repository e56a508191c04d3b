package io.github.pqbridge;

import java.lang.System.Logger.Level;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/** Says how loud to log what may happen often: loud once a minute for each kind. */
final class Seldom {
    private final Map<String, Long> next = new ConcurrentHashMap<>();

    /** Returns that level, or DEBUG. */
    Level level(String kind, Level loud) {
        long now = System.nanoTime();
        boolean[] due = {false};
        next.compute(kind, (k, at) -> {
            due[0] = at == null || now - at >= 0;
            return due[0] ? now + TimeUnit.MINUTES.toNanos(1) : at;
        });
        return due[0] ? loud : Level.DEBUG;
    }
}
