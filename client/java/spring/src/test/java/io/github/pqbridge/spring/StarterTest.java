package io.github.pqbridge.spring;

import static org.assertj.core.api.Assertions.assertThat;

import io.github.pqbridge.Codec;
import io.github.pqbridge.Job;
import io.github.pqbridge.JobName;
import io.github.pqbridge.JobResult;
import io.github.pqbridge.Middleware;
import io.github.pqbridge.PqClient;
import io.github.pqbridge.Push;
import io.github.pqbridge.Queue;
import io.github.pqbridge.State;
import io.github.pqbridge.telemetry.PqTelemetry;
import io.github.pqbridge.testing.Bridge;
import io.github.pqbridge.testing.Program;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import io.nats.client.Connection;
import io.nats.client.Nats;
import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledForJreRange;
import org.junit.jupiter.api.condition.JRE;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.springframework.aop.framework.ProxyFactory;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.health.autoconfigure.registry.HealthContributorRegistryAutoConfiguration;
import org.springframework.boot.health.contributor.Health;
import org.springframework.boot.health.contributor.HealthIndicator;
import org.springframework.boot.health.contributor.Status;
import org.springframework.boot.jackson.autoconfigure.JacksonAutoConfiguration;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Scope;
import org.springframework.scheduling.annotation.Async;
import org.springframework.scheduling.concurrent.ThreadPoolTaskExecutor;

class StarterTest {
    private static Bridge bridge;

    private final ApplicationContextRunner runner = new ApplicationContextRunner()
            .withConfiguration(AutoConfigurations.of(
                    JacksonAutoConfiguration.class,
                    HealthContributorRegistryAutoConfiguration.class,
                    PqAutoConfiguration.class))
            .withPropertyValues("pqbridge.url=" + bridge.url(), "pqbridge.timeout=2m");

    @BeforeAll
    static void start() {
        bridge = Bridge.start();
    }

    @AfterAll
    static void stop() {
        bridge.close();
    }

    record Letter(String to, List<Integer> pages) {}

    abstract static class Typed<T> {
        @PqWorker(queue = "values", type = "generic")
        T same(T value) {
            return value;
        }
    }

    static class Values extends Typed<Letter> {
        @PqWorker(queue = "values", type = "bytes")
        byte[] bytes(byte[] value) {
            return value;
        }

        @PqWorker(queue = "values", type = "text")
        String text(Job job, String value) {
            return job.type() + " " + value;
        }

        @PqWorker(queue = "values", type = "record")
        Letter record(Letter letter) {
            return new Letter(letter.to + "!", letter.pages);
        }

        @PqWorker(queue = "values", type = "list")
        public int list(List<Letter> letters) {
            return letters.get(1).pages.get(0);
        }

        @PqWorker(queue = "values", type = "nothing")
        void nothing() {}

        @PqWorker(queue = "values")
        protected void others(Job job) throws IOException {
            throw new IOException("nobody sends a " + job.type());
        }

        @PqWorker(queue = "${fifo.name}", fifo = true, type = "")
        String fifo(String value) {
            return "fifo " + value;
        }
    }

    /** Values come as the method wants them, results go as it returns them, and types choose. */
    @Test
    void valuesAndResults() {
        runner.withBean(Values.class).withPropertyValues("fifo.name=values").run(context -> {
            PqClient client = context.getBean(PqClient.class);
            Queue queue = client.priorityQueue("values");
            queue.configure(io.github.pqbridge.Settings.of().maxDeliver(1));

            assertThat(call(queue, "bytes", "\u0000\u0001").text()).isEqualTo("\u0000\u0001");
            assertThat(call(queue, "text", "hello").text()).isEqualTo("text hello");
            JobResult record = call(queue, "record", "{\"to\":\"eve\",\"pages\":[1,2]}");
            assertThat(record.text()).isEqualTo("{\"to\":\"eve!\",\"pages\":[1,2]}");
            assertThat(record.contentType()).isEqualTo("application/json");
            assertThat(call(queue, "generic", "{\"to\":\"bob\",\"pages\":[]}").text())
                    .isEqualTo("{\"to\":\"bob\",\"pages\":[]}");
            assertThat(call(queue, "list", "[{},{\"pages\":[7]}]").text()).isEqualTo("7");
            assertThat(call(queue, "nothing", "").hasResult()).isFalse();
            JobResult failed = end(queue, Push.of("x").type("parcel"));
            assertThat(failed.failure()).isEqualTo("IOException: nobody sends a parcel");
            JobResult unread = end(queue, Push.of("no JSON").type("record"));
            assertThat(unread.state()).isEqualTo(State.DEAD);
            assertThat(unread.failure()).contains("JSON");
            JobResult fifo = client.fifoQueue("values").call(Push.of("first"), Program.PATIENCE);
            assertThat(fifo.text()).isEqualTo("fifo first");
        });
    }

    static class PrivateMethod {
        @PqWorker(queue = "wrong")
        private void send() {}
    }

    static class StaticMethod {
        @PqWorker(queue = "wrong")
        static void send() {}
    }

    static class TwoValues {
        @PqWorker(queue = "wrong")
        void send(String one, String two) {}
    }

    static class TwoJobs {
        @PqWorker(queue = "wrong")
        void send(Job one, Job two) {}
    }

    static class Future {
        @PqWorker(queue = "wrong")
        CompletableFuture<String> send() {
            return CompletableFuture.completedFuture("");
        }
    }

    static class SameType {
        @PqWorker(queue = "wrong", type = "email")
        void other() {}

        @PqWorker(queue = "wrong", type = "email")
        void send() {}
    }

    static class BadName {
        @PqWorker(queue = "a.b")
        void send() {}
    }

    static class NoPlaceholder {
        @PqWorker(queue = "${no.such.property}")
        void send() {}
    }

    static class MaxOfFifo {
        @PqWorker(queue = "limited", fifo = true)
        void send() {}
    }

    static class Later {
        @Async
        @PqWorker(queue = "wrong")
        void send() {}
    }

    static class Any<T> {
        @PqWorker(queue = "wrong")
        void send(T value) {}
    }

    static Stream<Arguments> wrong() {
        return Stream.of(
                Arguments.of(Later.class, "send", "want no @Async"),
                Arguments.of(Any.class, "send", "a type variable"),
                Arguments.of(PrivateMethod.class, "send", "it is static or private"),
                Arguments.of(StaticMethod.class, "send", "it is static or private"),
                Arguments.of(TwoValues.class, "send", "at most one parameter for the value"),
                Arguments.of(TwoJobs.class, "send", "one of the type Job"),
                Arguments.of(Future.class, "send", "not a CompletableFuture"),
                Arguments.of(SameType.class, "", "jobs of type \"email\" have a handler already"),
                Arguments.of(BadName.class, "send", "a.b"),
                Arguments.of(NoPlaceholder.class, "send", "no.such.property"),
                Arguments.of(MaxOfFifo.class, "send", "FIFO"));
    }

    /** A method that cannot be a handler stops the start, and the message names it. */
    @ParameterizedTest
    @MethodSource("wrong")
    void wrongMethodsStopTheStart(Class<?> bean, String method, String why) {
        runner.withBean(bean).withPropertyValues("pqbridge.worker.max=true").run(context -> {
            assertThat(context).hasFailed();
            assertThat(context.getStartupFailure())
                    .hasMessageContaining(bean.getName() + "." + method)
                    .hasMessageContaining(why);
        });
    }

    /** Properties of a queue that no method names stop the start, with the name and those that there are. */
    @Test
    void propertiesOfNoQueueStopTheStart() {
        runner.withBean(Barrier.class).withPropertyValues("pqbridge.workers.togehter.concurrency=3").run(context ->
                assertThat(context.getStartupFailure())
                        .hasMessageContaining("pqbridge.workers.togehter")
                        .hasMessageContaining("[together]"));
    }

    /** The name of a queue is taken as it is written. */
    @ParameterizedTest
    @ValueSource(strings = {"odd_Name", "[odd_Name]"})
    void propertiesOfOddNames(String name) {
        runner.withBean(Odd.class).withPropertyValues("pqbridge.workers." + name + ".concurrency=3").run(context ->
                assertThat(context).hasNotFailed());
    }

    static class Odd {
        @PqWorker(queue = "odd_Name")
        void nothing() {}
    }

    /** With a client of the application's own, the starter makes no connection. */
    @Test
    void ownClientNeedsNoConnection() throws Exception {
        try (PqClient own = PqClient.connect(PqClient.options().server(bridge.url()).build())) {
            runner.withBean("own", PqClient.class, () -> own)
                    .withPropertyValues("pqbridge.url=nats://127.0.0.1:1")
                    .run(context -> assertThat(context).doesNotHaveBean(io.nats.client.Connection.class));
        }
    }

    @Test
    void userWithoutPasswordStopsTheStart() {
        runner.withPropertyValues("pqbridge.user=eve").run(context ->
                assertThat(context.getStartupFailure()).rootCause().hasMessageContaining("pqbridge.password"));
    }

    @Configuration(proxyBeanMethods = false)
    static class Prototype {
        @Bean
        @Scope("prototype")
        Values values() {
            return new Values();
        }
    }

    @Test
    void beansThatAreNoSingletonsStopTheStart() {
        runner.withUserConfiguration(Prototype.class).withPropertyValues("fifo.name=f").run(context ->
                assertThat(context.getStartupFailure()).hasMessageContaining("no singleton"));
    }

    interface Greeter {
        String greet(String name);
    }

    static class Polite implements Greeter {
        @Override
        @PqWorker(queue = "greetings")
        public String greet(String name) {
            return "dear " + name;
        }

        @PqWorker(queue = "greetings", type = "aside")
        public void aside() {}
    }

    @Configuration(proxyBeanMethods = false)
    static class Proxied {
        @Bean
        Polite polite() {
            ProxyFactory factory = new ProxyFactory(new Polite());
            factory.setProxyTargetClass(true);
            factory.addAdvice((org.aopalliance.intercept.MethodInterceptor) call -> call.proceed() + "!");
            return (Polite) factory.getProxy();
        }
    }

    /** The method is called through the proxies of its bean, such as those of transactions. */
    @Test
    void proxiesAreCalled() {
        runner.withUserConfiguration(Proxied.class).run(context -> {
            Queue queue = context.getBean(PqClient.class).priorityQueue("greetings");
            assertThat(call(queue, "", "eve").text()).isEqualTo("dear eve!");
        });
    }

    static class Barrier {
        final CyclicBarrier together = new CyclicBarrier(3);

        @PqWorker(queue = "together")
        void wait3() throws Exception {
            together.await(Program.PATIENCE.toSeconds(), TimeUnit.SECONDS);
        }
    }

    /** What a queue has of its own comes before what holds for all. */
    @Test
    void propertiesReachTheWorkers() {
        runner.withBean(Barrier.class)
                .withPropertyValues("pqbridge.worker.concurrency=1", "pqbridge.worker.holder=everybody",
                        "pqbridge.workers.together.concurrency=3")
                .run(context -> {
                    Queue queue = context.getBean(PqClient.class).priorityQueue("together");
                    List<String> ids = Stream.of("a", "b", "c").map(v -> keep(queue, Push.of(v))).toList();
                    for (String id : ids) {
                        assertThat(queue.result(JobName.id(id), Program.PATIENCE).state()).isEqualTo(State.DONE);
                    }
                });
    }

    /** A connection of the application is used, and closed with the application alone. */
    @Test
    void ownConnectionIsUsed() throws Exception {
        Connection own = Nats.connect(bridge.url());
        runner.withPropertyValues("pqbridge.url=nats://127.0.0.1:1")
                .withBean(Connection.class, () -> own, bean -> bean.setDestroyMethodName(""))
                .run(context -> {
                    assertThat(context).hasSingleBean(Connection.class);
                    assertThat(context.getBean(PqClient.class).connection()).isSameAs(own);
                    assertThat(context.getBean(PqClient.class).priorityQueue("jobs").len()).isZero();
                });
        assertThat(own.getStatus()).isEqualTo(Connection.Status.CONNECTED);
        own.close();
    }

    static class Slow {
        final CountDownLatch begun = new CountDownLatch(1);
        final CountDownLatch closing = new CountDownLatch(1);
        private final ThreadPoolTaskExecutor executor;

        Slow(ThreadPoolTaskExecutor executor) {
            this.executor = executor;
        }

        @PqWorker(queue = "slow")
        String send() throws Exception {
            begun.countDown();
            closing.await();
            return executor.submit(() -> "sent").get();
        }
    }

    /** Workers end before what they use: an executor of Spring takes tasks of the last job. */
    @Test
    void workersEndBeforeWhatTheyUse() throws Exception {
        CompletableFuture<String> id = new CompletableFuture<>();
        runner.withBean(Slow.class)
                .withBean(ThreadPoolTaskExecutor.class, () -> {
                    ThreadPoolTaskExecutor executor = new ThreadPoolTaskExecutor();
                    executor.setStrictEarlyShutdown(true); // when the context begins to close
                    return executor;
                })
                .run(context -> {
                    Slow slow = context.getBean(Slow.class);
                    id.complete(keep(context.getBean(PqClient.class).priorityQueue("slow"), Push.of("")));
                    assertThat(slow.begun.await(Program.PATIENCE.toSeconds(), TimeUnit.SECONDS)).isTrue();
                    Thread closer = new Thread(context.getSourceApplicationContext()::close);
                    closer.start();
                    while (Stream.of(closer.getStackTrace()).noneMatch(
                            frame -> frame.getClassName().equals(PqWorkers.class.getName()))) {
                        Thread.sleep(5); // until it waits for the worker
                    }
                    slow.closing.countDown();
                    closer.join();
                });
        runner.run(context -> {
            JobResult result = context.getBean(PqClient.class).priorityQueue("slow").result(id.get());
            assertThat(result.text()).isEqualTo("sent");
            assertThat(result.state()).isEqualTo(State.DONE);
        });
    }

    static class Idle {
        @PqWorker(queue = "idle")
        void nothing() {}
    }

    /** Health is down while NATS is away, and when a worker cannot go on. */
    @Test
    void healthFollowsNatsAndWorkers() {
        Bridge own = Bridge.start();
        runner.withBean(Idle.class).withPropertyValues("pqbridge.url=" + own.url()).run(context -> {
            HealthIndicator indicator = context.getBean("pqbridgeHealthIndicator", HealthIndicator.class);
            awaitHealth(indicator, Status.UP);
            assertThat(indicator.health().getDetails().get("workers")).asString().contains("idle=running");
            own.kill();
            awaitHealth(indicator, Status.DOWN);
            own.restart();
            awaitHealth(indicator, Status.UP);

            context.getBean(Connection.class).close(); // for good

            awaitHealth(indicator, Status.DOWN);
            while (indicator.health().getDetails().get("workers").toString().contains("running")) {
                Thread.sleep(10);
            }
        });
        own.close();
    }

    /** An application that starts before NATS waits for it. */
    @Test
    void startWaitsForNats() {
        Bridge own = Bridge.start();
        own.kill();
        CompletableFuture<Void> restarted = CompletableFuture.runAsync(own::restart);
        runner.withBean(Values.class)
                .withPropertyValues("fifo.name=values", "pqbridge.url=" + own.url())
                .run(context -> {
                    Queue queue = context.getBean(PqClient.class).priorityQueue("values");
                    assertThat(call(queue, "text", "late").text()).isEqualTo("text late");
                });
        restarted.join();
        own.close();
    }

    @Configuration(proxyBeanMethods = false)
    static class Around {
        @Bean
        Middleware shout() {
            return (job, next) -> {
                next.handle(job);
                job.result(job.text() + " around", Codec.TEXT);
            };
        }
    }

    /** Middleware of the application wraps the methods, inside of telemetry, which finds its beans. */
    @Test
    void middlewareAndTelemetry() {
        SimpleMeterRegistry meters = new SimpleMeterRegistry();
        runner.withBean(Values.class)
                .withUserConfiguration(Around.class)
                .withBean(MeterRegistry.class, () -> meters)
                .withPropertyValues("fifo.name=values")
                .run(context -> {
                    Queue queue = context.getBean(PqClient.class).priorityQueue("values");
                    assertThat(call(queue, "nothing", "x").text()).isEqualTo("x around");
                    assertThat(context.getBeanProvider(Middleware.class).orderedStream().findFirst())
                            .containsInstanceOf(PqTelemetry.class);
                });
        assertThat(meters.get("pqbridge.worker.jobs").counter().count()).isEqualTo(1);
    }

    static class Threads {
        @PqWorker(queue = "threads")
        String name() throws ReflectiveOperationException {
            return Thread.class.getMethod("isVirtual").invoke(Thread.currentThread()).toString();
        }
    }

    /** Handlers run in virtual threads if the application wants them. */
    @ParameterizedTest
    @ValueSource(strings = {"true", "false"})
    @EnabledForJreRange(min = JRE.JAVA_21, disabledReason = "Java 17 has no virtual threads")
    void virtualThreads(String enabled) {
        runner.withBean(Threads.class)
                .withPropertyValues("spring.threads.virtual.enabled=" + enabled)
                .run(context -> {
                    Queue queue = context.getBean(PqClient.class).priorityQueue("threads");
                    assertThat(call(queue, "", "").text()).isEqualTo(enabled);
                });
    }

    /** Without auto-startup no worker begins, and a start by hand begins them, as often as one likes. */
    @Test
    void workersStartByHand() {
        runner.withBean(Values.class)
                .withPropertyValues("fifo.name=values", "pqbridge.auto-startup=false")
                .run(context -> {
                    PqWorkers workers = context.getBean(PqWorkers.class);
                    assertThat(workers.isRunning()).isFalse();
                    for (int i = 0; i < 2; i++) {
                        workers.start();
                        Queue queue = context.getBean(PqClient.class).priorityQueue("values");
                        assertThat(call(queue, "text", "again").text()).isEqualTo("text again");
                        workers.stop();
                        assertThat(workers.isRunning()).isFalse();
                    }
                });
    }

    /** Each property has a description, and those with a default name it. */
    @Test
    void propertiesHaveMetadata() throws IOException {
        try (var file = getClass().getResourceAsStream("/META-INF/spring-configuration-metadata.json")) {
            var properties = new tools.jackson.databind.json.JsonMapper().readTree(file).get("properties");
            assertThat(properties.size()).isGreaterThan(15);
            properties.forEach(p -> assertThat(p.path("description").asString("")).as(p.toString()).isNotEmpty());
        }
    }

    private static void awaitHealth(HealthIndicator indicator, Status status) throws InterruptedException {
        long end = System.nanoTime() + Program.PATIENCE.toNanos();
        Health health = indicator.health();
        while (!health.getStatus().equals(status)) {
            assertThat(System.nanoTime()).as(health.toString()).isLessThan(end);
            Thread.sleep(10);
            health = indicator.health();
        }
    }

    private static JobResult call(Queue queue, String type, String value) {
        return queue.call(Push.of(value).type(type), Program.PATIENCE);
    }

    private static String keep(Queue queue, Push push) {
        return queue.push(push.keep(Duration.ofHours(1))).id();
    }

    /** Pushes a job, and returns what became of it. */
    private static JobResult end(Queue queue, Push push) {
        return queue.result(JobName.id(keep(queue, push)), Program.PATIENCE);
    }
}
