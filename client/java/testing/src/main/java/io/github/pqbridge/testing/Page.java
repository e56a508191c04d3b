package io.github.pqbridge.testing;

import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import javax.tools.JavaCompiler;
import javax.tools.StandardJavaFileManager;
import javax.tools.ToolProvider;

/** The examples of a page of the documents, which run as they stand. */
public final class Page {
    private final String text;

    /**
     * Reads a page.
     *
     * @param name its path from the root of the checkout
     */
    public Page(String name) {
        try {
            text = Files.readString(Program.inRepository(name));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /**
     * A block of code.
     *
     * @param language such as "java" or "sh"
     * @param text the lines
     */
    public record Block(String language, String text) {}

    /**
     * Returns the blocks of a chapter in their order.
     *
     * @param chapter its heading, "" for the whole page
     * @return the blocks
     */
    public List<Block> blocks(String chapter) {
        String part = text;
        if (!chapter.isEmpty()) {
            part = text.substring(text.indexOf("\n## " + chapter + "\n") + 1);
            int end = part.indexOf("\n## ");
            part = end < 0 ? part : part.substring(0, end);
        }
        return Pattern.compile("```(\\w+)\\n(.*?)```", Pattern.DOTALL).matcher(part).results()
                .map(block -> new Block(block.group(1), block.group(2)))
                .toList();
    }

    /** What a snippet may use without declaring it: names, and values of public types. */
    public static final class Names {
        private final Map<String, Class<?>> types = new LinkedHashMap<>();
        private final Map<String, Object> values = new LinkedHashMap<>();

        /**
         * Adds a name.
         *
         * @param <T> the type
         * @param name the name
         * @param type the type that the snippet sees
         * @param value the value
         * @return this
         */
        public <T> Names with(String name, Class<T> type, T value) {
            types.put(name, type);
            values.put(name, value);
            return this;
        }
    }

    /**
     * Runs statements of Java.
     *
     * @param snippet the statements
     * @param imports what they import, such as "java.util.*"
     * @param names what they use
     * @throws Exception that the statements throw
     */
    public static void run(String snippet, List<String> imports, Names names) throws Exception {
        StringBuilder source = new StringBuilder();
        imports.forEach(i -> source.append("import ").append(i).append(";\n"));
        source.append("public class Snippet {\n")
                .append("public static void run(java.util.Map<String, Object> given) throws Exception {\n");
        names.types.forEach((name, type) -> {
            if (!declares(snippet, name)) {
                String line = "final %1$s %2$s = (%1$s) given.get(\"%2$s\");\n";
                source.append(line.formatted(type.getCanonicalName(), name));
            }
        });
        source.append(snippet);
        if (declares(snippet, "worker")) {
            source.append("worker.close();\n");
        }
        source.append("}}\n");

        Path folder = Files.createTempDirectory("pqbridge-snippet-");
        compile(folder, source.toString());
        try (URLClassLoader loader = new URLClassLoader(new URL[] {folder.toUri().toURL()})) {
            loader.loadClass("Snippet").getMethod("run", Map.class).invoke(null, names.values);
        } catch (InvocationTargetException e) {
            throw new AssertionError("this snippet throws:\n" + snippet, e.getTargetException());
        }
    }

    /** Reports whether statements declare a variable. */
    private static boolean declares(String snippet, String name) {
        String declaration = "(?m)^ *[A-Z]\\w*(<[\\w<>]+>)? " + name + " = ";
        return Pattern.compile(declaration).matcher(snippet).find();
    }

    private static void compile(Path folder, String source) throws IOException {
        Path file = Files.writeString(folder.resolve("Snippet.java"), source);
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        StringWriter errors = new StringWriter();
        try (StandardJavaFileManager files = compiler.getStandardFileManager(null, null, null)) {
            List<String> options = List.of(
                    "-cp", System.getProperty("java.class.path"), "-d", folder.toString(), "-proc:none");
            if (!compiler.getTask(errors, files, null, options, null, files.getJavaFileObjects(file)).call()) {
                throw new AssertionError(errors + "\n" + source);
            }
        }
    }
}
