/** Values of jobs in JSON, by Jackson. */
package io.github.pqbridge.jackson;
