package io.github.pqbridge.spring;

import io.github.pqbridge.Codec;
import io.github.pqbridge.Handler;
import io.github.pqbridge.Job;
import io.github.pqbridge.jackson.JacksonCodec;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Type;
import java.lang.reflect.TypeVariable;
import java.util.Arrays;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Future;
import org.springframework.aop.support.AopUtils;
import org.springframework.core.GenericTypeResolver;
import org.springframework.core.ReactiveAdapterRegistry;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.scheduling.annotation.Async;
import org.springframework.util.ReflectionUtils;
import tools.jackson.databind.json.JsonMapper;

/** A method of a bean that does jobs. */
final class HandlerMethod implements Handler {
    private final Object bean;
    private final Method method;
    private final Type[] parameters;
    private final JsonMapper mapper;
    private final Codec<Object> json;

    /**
     * Checks the method of the bean's class, and finds the one to call if the bean is a proxy.
     *
     * @throws IllegalArgumentException if the method cannot be a handler
     */
    HandlerMethod(Object bean, Method declared, JsonMapper mapper) {
        Class<?> type = AopUtils.getTargetClass(bean);
        this.parameters = Arrays.stream(declared.getGenericParameterTypes())
                .map(parameter -> GenericTypeResolver.resolveType(parameter, type))
                .toArray(Type[]::new);
        String fault = fault(declared);
        if (Arrays.stream(parameters).anyMatch(TypeVariable.class::isInstance)) {
            fault = "the type of its value is a type variable";
        } else if (AopUtils.isCglibProxy(bean) && Modifier.isFinal(declared.getModifiers())) {
            fault = "it is final, and so runs on the proxy of the bean";
        }
        if (fault != null) {
            throw new IllegalArgumentException(fault);
        }
        this.bean = bean;
        this.method = AopUtils.selectInvocableMethod(declared, bean.getClass());
        this.mapper = mapper;
        this.json = JacksonCodec.of(Object.class, mapper);
        ReflectionUtils.makeAccessible(method);
    }

    private static String fault(Method method) {
        if (Modifier.isStatic(method.getModifiers()) || Modifier.isPrivate(method.getModifiers())) {
            return "it is static or private";
        }
        Class<?>[] types = method.getParameterTypes();
        long jobs = Arrays.stream(types).filter(Job.class::equals).count();
        if (jobs > 1 || types.length - jobs > 1) {
            return "want at most one parameter for the value and one of the type Job";
        }
        if (AnnotatedElementUtils.hasAnnotation(method, Async.class)
                || AnnotatedElementUtils.hasAnnotation(method.getDeclaringClass(), Async.class)) {
            return "it returns before the job is done: want no @Async";
        }
        Class<?> result = method.getReturnType();
        if (CompletionStage.class.isAssignableFrom(result)
                || Future.class.isAssignableFrom(result)
                || ReactiveAdapterRegistry.getSharedInstance().getAdapter(result) != null) {
            return "it returns before the job is done: want the result, not a " + result.getSimpleName();
        }
        return null;
    }

    @Override
    public void handle(Job job) throws Exception {
        Object[] arguments = Arrays.stream(parameters).map(type -> argument(type, job)).toArray();
        try {
            Object result = method.invoke(bean, arguments);
            if (result instanceof byte[] bytes) {
                job.result(bytes);
            } else if (result instanceof String text) {
                job.result(text, Codec.TEXT);
            } else if (result != null) {
                job.result(result, json);
            }
        } catch (InvocationTargetException e) {
            ReflectionUtils.rethrowException(e.getTargetException());
        }
    }

    private Object argument(Type type, Job job) {
        if (type == Job.class || type == byte[].class) {
            return type == Job.class ? job : job.value();
        }
        return type == String.class ? job.text() : mapper.readValue(job.value(), mapper.constructType(type));
    }
}
