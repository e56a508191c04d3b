/** An application of Spring Boot that sends letters, by the starter of pqbridge. */
package io.github.pqbridge.sample;
