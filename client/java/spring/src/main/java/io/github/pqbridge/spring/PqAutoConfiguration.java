package io.github.pqbridge.spring;

import io.github.pqbridge.Middleware;
import io.github.pqbridge.PqClient;
import io.github.pqbridge.telemetry.PqTelemetry;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.composite.CompositeMeterRegistry;
import io.nats.client.Connection;
import io.nats.client.Nats;
import io.nats.client.Options;
import io.opentelemetry.api.OpenTelemetry;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.boot.health.autoconfigure.contributor.ConditionalOnEnabledHealthIndicator;
import org.springframework.boot.health.contributor.HealthIndicator;
import org.springframework.boot.thread.Threading;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.Ordered;
import org.springframework.core.annotation.Order;
import org.springframework.core.env.Environment;
import org.springframework.core.task.SimpleAsyncTaskExecutor;
import org.springframework.util.Assert;
import tools.jackson.databind.json.JsonMapper;

/** Makes a connection, a client of it, and the workers, unless the application has its own. */
@AutoConfiguration(afterName = {
    "org.springframework.boot.jackson.autoconfigure.JacksonAutoConfiguration",
    "org.springframework.boot.micrometer.metrics.autoconfigure.CompositeMeterRegistryAutoConfiguration",
    "org.springframework.boot.opentelemetry.autoconfigure.OpenTelemetrySdkAutoConfiguration"
})
@EnableConfigurationProperties(PqProperties.class)
public class PqAutoConfiguration {
    /** Spring makes it. */
    public PqAutoConfiguration() {}

    @Bean(destroyMethod = "close")
    @ConditionalOnMissingBean({Connection.class, PqClient.class})
    Connection pqConnection(PqProperties properties, Environment environment) {
        Options.Builder options = PqClient.options();
        String url = properties.url() == null ? environment.getProperty("NATS_URL") : properties.url();
        if (url != null) {
            options.server(url);
        }
        if (properties.user() != null) {
            Assert.state(properties.password() != null, "pqbridge.user without pqbridge.password");
            options.userInfo(properties.user(), properties.password());
        }
        if (properties.credentials() != null) {
            options.authHandler(Nats.credentials(properties.credentials()));
        }
        if (properties.inboxPrefix() != null) {
            options.inboxPrefix(properties.inboxPrefix());
        }
        options.connectionName(environment.getProperty("spring.application.name"));
        return PqClient.connect(options.build()).connection();
    }

    @Bean
    @ConditionalOnMissingBean
    PqClient pqClient(Connection connection, PqProperties properties) {
        return PqClient.builder(connection)
                .prefix(properties.prefix())
                .fifoPrefix(properties.fifoPrefix())
                .timeout(properties.timeout())
                .build();
    }

    @Bean
    PqWorkers pqWorkers(
            ConfigurableApplicationContext context,
            PqProperties properties,
            PqClient client,
            ObjectProvider<JsonMapper> mapper,
            ObjectProvider<Middleware> middleware) {
        SimpleAsyncTaskExecutor executor = new SimpleAsyncTaskExecutor("pqbridge-");
        executor.setVirtualThreads(Threading.VIRTUAL.isActive(context.getEnvironment()));
        executor.setDaemon(true);
        return new PqWorkers(context, properties, client, mapper.getIfAvailable(JsonMapper::new),
                middleware.orderedStream().toList(), executor);
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(HealthIndicator.class)
    static class HealthConfiguration {
        @Bean
        @ConditionalOnEnabledHealthIndicator("pqbridge")
        @ConditionalOnMissingBean(name = "pqbridgeHealthIndicator")
        HealthIndicator pqbridgeHealthIndicator(PqClient client, PqWorkers workers) {
            return new PqHealthIndicator(client, workers);
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(PqTelemetry.class)
    static class TelemetryConfiguration {
        @Bean
        @Order(Ordered.HIGHEST_PRECEDENCE)
        @ConditionalOnMissingBean
        PqTelemetry pqTelemetry(ObjectProvider<MeterRegistry> registry, ObjectProvider<OpenTelemetry> telemetry) {
            return new PqTelemetry(registry.getIfAvailable(CompositeMeterRegistry::new),
                    telemetry.getIfAvailable(OpenTelemetry::noop));
        }
    }
}
