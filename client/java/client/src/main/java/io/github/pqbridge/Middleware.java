package io.github.pqbridge;

/** Wraps handlers: it calls the next one, and may do without, or change what it throws. */
@FunctionalInterface
public interface Middleware {
    /**
     * Does a job, by calling the next handler.
     *
     * @param job the job
     * @param next the handler, or the middleware between
     * @throws Exception if the job is not done
     */
    void handle(Job job, Handler next) throws Exception;
}
