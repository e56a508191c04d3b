/**
 * Workers and a client of pqbridge in applications of Spring Boot 4.
 *
 * <pre>{@code
 * @PqWorker(queue = "letters", type = "email")
 * String email(Letter letter, Job job) {
 *     return mailer.send(letter);
 * }
 * }</pre>
 *
 * <p>{@link io.github.pqbridge.spring.PqWorker} says what such methods may look like, and {@link
 * io.github.pqbridge.spring.PqProperties} has the settings. Other beans push by a {@link
 * io.github.pqbridge.PqClient}, which is a bean.
 */
package io.github.pqbridge.spring;
