package io.github.pqbridge.sample;

import io.github.pqbridge.Job;
import io.github.pqbridge.spring.PqWorker;
import java.io.IOException;
import java.util.logging.Logger;
import org.springframework.stereotype.Component;

/** Sends letters. */
@Component
class Postman {
    private static final Logger LOG = Logger.getLogger(Postman.class.getName());

    @PqWorker(queue = "letters", type = "email")
    String email(Letter letter, Job job) throws IOException, InterruptedException {
        LOG.info("to " + letter.to() + ", delivery " + job.deliveries());
        if (letter.takes() != null) {
            Thread.sleep(letter.takes().toMillis()); // here the mail would be sent
        }
        if (letter.to().equals("full")) {
            throw new IOException("the mailbox is full");
        }
        return "sent to " + letter.to();
    }
}
