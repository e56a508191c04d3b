package io.github.pqbridge.spring;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Marks a method of a bean that does the jobs of a queue. The methods of one queue share a worker,
 * which calls the one for the type of a job.
 *
 * <p>The method may have one parameter for the value, one of the type {@link
 * io.github.pqbridge.Job}, both or none. A value of the type {@code byte[]} or {@code String} is as
 * it was pushed, and any other is read from JSON. What the method returns is the result of the job:
 * {@code byte[]} and {@code String} as they are, and anything else as JSON. What it throws decides
 * what becomes of the job, as for any {@link io.github.pqbridge.Handler}. A method that cannot be a
 * handler stops the start of the application.
 */
@Target({ElementType.METHOD, ElementType.ANNOTATION_TYPE})
@Retention(RetentionPolicy.RUNTIME)
@Documented
public @interface PqWorker {
    /**
     * Names the queue. Placeholders such as {@code ${letters.queue}} are replaced.
     *
     * @return the name
     */
    String queue();

    /**
     * Says which jobs: "" for those without a type, and "*" for all whose type has no method.
     *
     * @return the type
     */
    String type() default "*";

    /**
     * Says that the queue is a FIFO queue.
     *
     * @return whether it is
     */
    boolean fifo() default false;
}
