package io.github.pqbridge.driver;

import static io.github.pqbridge.driver.Command.bytesOf;
import static io.github.pqbridge.driver.Command.durationOf;

import io.github.pqbridge.*;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** Handlers that do what the values of their jobs say. */
final class Handlers {
    private Handlers() {}

    /** Returns the handler with a key, which is null for the one of all jobs. */
    static Handler of(String worker, String key) {
        return job -> {
            Map<String, Object> start = about("start", worker, job);
            start.putAll(Lines.object("deliveries", job.deliveries(), "type", job.type(), "handler", key,
                    "joined", job.joined().map(j -> j.toString().replaceAll("Joined\\[|,|]", "")).orElse(null),
                    "parent", job.parent().map(JobRef::id).orElse(null)));
            Lines.say("", start);
            String how = "failed";
            try {
                run(job);
                how = "done";
            } catch (InterruptedException e) {
                how = job.ending().map(why -> why.name().toLowerCase(Locale.ROOT)).orElse(how);
                throw e;
            } finally {
                Map<String, Object> end = about("end", worker, job);
                end.put("how", how);
                Lines.say("", end);
            }
        };
    }

    private static Map<String, Object> about(String event, String worker, Job job) {
        return Lines.object("event", event, "worker", worker, "job", job.id(), "at", System.currentTimeMillis());
    }

    private static void run(Job job) throws Exception {
        if (!job.text().startsWith("{\"do\":")) {
            return;
        }
        for (Object step : Command.read(job.text()).list("do")) {
            List<String> words = ((List<?>) step).stream().map(String.class::cast).toList();
            if (words.equals(List.of("return"))) {
                return;
            } else if (words.get(0).equals("return")) {
                job.result(bytesOf(words.get(1)));
                return;
            }
            step(job, words.get(0), words.subList(1, words.size()));
        }
    }

    private static void step(Job job, String name, List<String> args) throws Exception {
        String arg = args.isEmpty() ? "" : args.get(0);
        switch (name) {
            case "thread" -> { } // each has its own
            case "wait" -> Thread.sleep(durationOf(arg).toMillis());
            case "block" -> block(job, durationOf(arg).toMillis());
            case "progress" -> job.progress(arg.getBytes(StandardCharsets.UTF_8));
            case "next" -> job.next(arg, Push.of(bytesOf(args.get(1))));
            case "member" -> job.next(arg, Push.of(bytesOf(args.get(1))).joiner(job.joiner().orElseThrow()));
            case "all" -> {
                int joiner = job.next(arg, Push.of(bytesOf(args.get(1))).join(Duration.ofHours(24)));
                args.subList(2, args.size()).forEach(member -> job.next(arg, Push.of(bytesOf(member)).joiner(joiner)));
            }
            case "fail" -> throw new Exception(arg, args.size() > 1 ? new Exception(args.get(1)) : null);
            case "retry" -> throw new RetryAfter(durationOf(arg), args.get(1));
            case "snooze" -> throw new Snooze(durationOf(arg));
            case "drop" -> throw new Drop(arg);
            default -> throw new Exception("no step " + name);
        }
    }

    /** Sleeps, whoever interrupts it. */
    private static void block(Job job, long millis) throws InterruptedException {
        long end = System.currentTimeMillis() + millis;
        for (long left = millis; left > 0; left = end - System.currentTimeMillis()) {
            try {
                Thread.sleep(left);
            } catch (InterruptedException deaf) {
                continue;
            }
        }
        if (job.ending().isPresent()) {
            throw new InterruptedException();
        }
    }
}
