package io.github.pqbridge.sample;

import io.github.pqbridge.Codec;
import io.github.pqbridge.JobName;
import io.github.pqbridge.JobResult;
import io.github.pqbridge.PqClient;
import io.github.pqbridge.Push;
import io.github.pqbridge.Queue;
import io.github.pqbridge.jackson.JacksonCodec;
import java.time.Duration;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;
import tools.jackson.databind.json.JsonMapper;

/** Takes letters, and says what became of them. */
@RestController
class LetterController {
    private final Queue letters;
    private final Codec<Letter> json;

    LetterController(PqClient client, JsonMapper mapper) {
        letters = client.priorityQueue("letters");
        json = JacksonCodec.of(Letter.class, mapper);
    }

    @PostMapping("/letters")
    String push(@RequestBody Letter letter) {
        Push push = Push.of(letter, json).type("email").priority(5).keep(Duration.ofHours(1));
        return letters.push(push).id();
    }

    @GetMapping("/letters/{id}")
    String outcome(@PathVariable String id) {
        JobResult result = letters.result(JobName.id(id), Duration.ofMinutes(1));
        return result.hasResult() ? result.text() : result.state() + " " + result.failure();
    }
}
