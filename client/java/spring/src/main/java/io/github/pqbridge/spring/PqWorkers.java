package io.github.pqbridge.spring;

import io.github.pqbridge.Middleware;
import io.github.pqbridge.PqClient;
import io.github.pqbridge.Queue;
import io.github.pqbridge.Worker;
import io.github.pqbridge.spring.PqProperties.WorkerProperties;
import java.lang.reflect.Method;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.function.Consumer;
import java.util.function.Function;
import org.apache.commons.logging.Log;
import org.apache.commons.logging.LogFactory;
import org.springframework.aop.framework.autoproxy.AutoProxyUtils;
import org.springframework.aop.scope.ScopedProxyUtils;
import org.springframework.beans.factory.SmartInitializingSingleton;
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory;
import org.springframework.context.ApplicationListener;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.SmartLifecycle;
import org.springframework.context.event.ContextClosedEvent;
import org.springframework.core.MethodIntrospector;
import org.springframework.core.Ordered;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.core.annotation.AnnotationUtils;
import org.springframework.util.Assert;
import org.springframework.util.ClassUtils;
import tools.jackson.databind.json.JsonMapper;

/**
 * The workers of an application, one for each queue that a {@link PqWorker} names. They begin last,
 * and end before what their methods use: executors of Spring stop in the same phase, or refuse tasks
 * from the moment the context closes, so the workers end as soon as they hear of that.
 */
final class PqWorkers
        implements SmartInitializingSingleton, SmartLifecycle, ApplicationListener<ContextClosedEvent>, Ordered {
    private static final Log LOG = LogFactory.getLog(PqWorkers.class);

    private final ConfigurableApplicationContext context;
    private final PqProperties properties;
    private final PqClient client;
    private final JsonMapper mapper;
    private final List<Middleware> middleware;
    private final Executor executor;
    private final Map<String, Worker.Builder> builders = new LinkedHashMap<>();
    private final Set<String> queues = new TreeSet<>(); // their names
    private volatile Map<String, Worker> running = Map.of();

    PqWorkers(ConfigurableApplicationContext context, PqProperties properties, PqClient client,
            JsonMapper mapper, List<Middleware> middleware, Executor executor) {
        this.context = context;
        this.properties = properties;
        this.client = client;
        this.mapper = mapper;
        this.middleware = middleware;
        this.executor = executor;
    }

    @Override
    public void afterSingletonsInstantiated() {
        ConfigurableListableBeanFactory beans = context.getBeanFactory();
        for (String name : beans.getBeanNamesForType(Object.class, true, false)) {
            Class<?> type = ScopedProxyUtils.isScopedTarget(name)
                    ? null // its proxy is a bean too
                    : AutoProxyUtils.determineTargetClass(beans, name);
            if (type != null && AnnotationUtils.isCandidateClass(type, PqWorker.class)) {
                MethodIntrospector.<PqWorker>selectMethods(type, this::annotation)
                        .forEach((method, annotation) -> add(name, method, annotation));
            }
        }
        for (String queue : properties.workers().keySet()) {
            Assert.state(queues.contains(queue), () -> "pqbridge.workers." + queue
                    + ": no @PqWorker has this queue, but those of " + queues);
        }
    }

    private PqWorker annotation(Method method) {
        return AnnotatedElementUtils.findMergedAnnotation(method, PqWorker.class);
    }

    private void add(String bean, Method method, PqWorker annotation) {
        try {
            if (!context.isSingleton(bean)) {
                throw new IllegalArgumentException("the bean " + bean + " is no singleton");
            }
            String name = context.getEnvironment().resolveRequiredPlaceholders(annotation.queue());
            Queue queue = annotation.fifo() ? client.fifoQueue(name) : client.priorityQueue(name);
            builders.computeIfAbsent(queue.toString(), key -> builder(queue))
                    .handle(annotation.type(), new HandlerMethod(context.getBean(bean), method, mapper));
        } catch (RuntimeException e) {
            throw new IllegalStateException("@PqWorker cannot have the method "
                    + ClassUtils.getQualifiedMethodName(method) + ": " + e.getMessage(), e);
        }
    }

    private Worker.Builder builder(Queue queue) {
        Worker.Builder builder = Worker.builder(queue).executor(executor);
        middleware.forEach(builder::middleware);
        String name = queue.name();
        queues.add(name);
        set(name, WorkerProperties::concurrency, builder::concurrency);
        set(name, WorkerProperties::ackWait, builder::ackWait);
        set(name, WorkerProperties::jobTimeout, builder::jobTimeout);
        set(name, WorkerProperties::retryDelay, builder::retryDelay);
        set(name, WorkerProperties::holder, builder::holder);
        set(name, WorkerProperties::max, max -> {
            if (max) {
                builder.max();
            }
        });
        return builder;
    }

    private <T> void set(String queue, Function<WorkerProperties, T> property, Consumer<T> setter) {
        WorkerProperties own = properties.workers().get(queue);
        T value = own == null ? null : property.apply(own);
        value = value == null ? property.apply(properties.worker()) : value;
        if (value != null) {
            setter.accept(value);
        }
    }

    @Override
    public synchronized void start() {
        if (isRunning()) {
            return;
        }
        Map<String, Worker> started = new LinkedHashMap<>();
        builders.forEach((queue, builder) -> {
            Worker worker = builder.start();
            worker.ended().whenComplete((none, failed) -> {
                if (failed != null) {
                    LOG.error("the worker of " + queue + " cannot go on", failed);
                }
            });
            started.put(queue, worker);
        });
        running = started;
    }

    @Override
    public synchronized void stop() {
        Function<Worker, CompletableFuture<Void>> stop =
                worker -> CompletableFuture.runAsync(() -> worker.stop(properties.stopTimeout()), executor);
        CompletableFuture.allOf(running.values().stream().map(stop).toArray(CompletableFuture[]::new)).join();
        running = Map.of();
    }

    @Override
    public void onApplicationEvent(ContextClosedEvent event) {
        if (event.getApplicationContext() == context) {
            stop();
        }
    }

    @Override
    public boolean isRunning() {
        return !running.isEmpty();
    }

    @Override
    public boolean isAutoStartup() {
        return properties.autoStartup();
    }

    @Override
    public int getOrder() {
        return HIGHEST_PRECEDENCE;
    }

    /** Returns the workers that are started, by their queues. */
    Map<String, Worker> running() {
        return running;
    }
}
