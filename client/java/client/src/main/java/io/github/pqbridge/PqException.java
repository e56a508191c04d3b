package io.github.pqbridge;

/**
 * What a request fails with: there is a subclass for each code and meaning of the protocol, and for
 * what fails in this process. {@link BadArgumentException} says that nothing was sent.
 */
public class PqException extends RuntimeException {
    /** The code of the protocol. */
    private final int code;
    /** The word of the protocol. */
    private final String reason;
    /** Whether it may have been carried out. */
    private final boolean unknown;
    /** Whether it may succeed later. */
    private final boolean passing;

    /**
     * Makes an exception.
     *
     * @param text what went wrong, and what would be right
     * @param code the code of the protocol, 0 for none
     * @param reason a word of the protocol, or ""
     * @param unknown whether the request may have been carried out
     * @param passing whether the same request may succeed later
     */
    protected PqException(String text, int code, String reason, boolean unknown, boolean passing) {
        super(code == 0 ? text : text + " (" + code + ")");
        this.code = code;
        this.reason = reason;
        this.unknown = unknown;
        this.passing = passing;
    }

    /**
     * Returns the code of the protocol.
     *
     * @return the code, 0 if the exception comes from this process
     */
    public int code() { return code; }

    /**
     * Returns which of its meanings the code has, in a word of the protocol.
     *
     * @return the word, "" for none
     */
    public String reason() { return reason; }

    /**
     * Reports whether the request may have been carried out.
     *
     * @return false if it certainly was not
     */
    public boolean unknown() { return unknown; }

    /**
     * Reports whether the same request may succeed later.
     *
     * @return false if trying again cannot help
     */
    public boolean passing() { return passing; }

    /** Adds a cause. */
    PqException because(Throwable cause) {
        if (cause != null && getCause() == null) {
            initCause(cause);
        }
        return this;
    }

    /** Returns the exception for a code and a reason of the protocol. */
    static PqException of(int code, String reason, String text, boolean unknown) {
        if (unknown) {
            return new UnknownOutcomeException(text, code, reason, true);
        }
        return switch (reason) {
            case "leased" -> new LeasedException(text, code, reason);
            case "joined" -> new JoinedException(text, code, reason);
            case "joins" -> new JoinsException(text, code, reason);
            default -> switch (code) {
                case 400 -> new BadRequestException(text, code, reason);
                case 404 -> new NotFoundException(text, code, reason);
                case 409 -> new LeaseLostException(text, code, reason);
                case 413 -> new TooLargeException(text, code, reason);
                case 429 -> new OverloadedException(text, code, reason);
                case 500 -> new InternalException(text, code, reason);
                case 503 -> new UnavailableException(text, code, reason, true);
                default -> new PqException(text, code, reason, false, false);
            };
        };
    }
}
