package io.github.pqbridge.sample;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;

/** Takes letters over HTTP, and sends them as jobs. */
@SpringBootApplication
public class SampleApplication {
    /**
     * Starts the application.
     *
     * @param arguments of Spring Boot
     */
    public static void main(String[] arguments) {
        SpringApplication.run(SampleApplication.class, arguments);
    }
}
