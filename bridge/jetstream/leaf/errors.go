package leaf

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrOffline: there is no connection, or it ended before the server confirmed a Flush.
	ErrOffline = errors.New("leaf: not connected")
	// ErrPending: too many bytes wait to be written, because the server reads too slowly: 64 MiB,
	// or what Config.Memory allows.
	ErrPending = errors.New("leaf: too much is waiting to be written")
	// ErrTooLarge: header and payload are larger than the server's max_payload.
	ErrTooLarge = errors.New("leaf: larger than max_payload")
	// ErrInvalid: the subject, the reply or the header of the message is not valid.
	ErrInvalid = errors.New("leaf: not valid")
	// ErrDenied: the user may not publish or subscribe to the subject. The server would end the
	// connection.
	ErrDenied = errors.New("not permitted")

	errProtocol = errors.New("protocol violation")
	errSilent   = errors.New("the server is silent")
	errTooLarge = errors.New("a message was larger than the account or the user may send, " +
		"which is less than max_payload")
)

// serverError returns what a server said before it ended the connection and, if that is not
// obvious, what may be done about it.
func serverError(text []byte) error {
	said := strings.Trim(string(text), " '")
	err := fmt.Errorf("the server says: %s", snippet(said))
	switch {
	case strings.HasPrefix(said, "Authorization Violation"):
		return fmt.Errorf("%w: it does not accept the login. Check it, that the user is one of "+
			"leafnodes.authorization if there is such a block, "+
			"and that the user's JWT allows connections of type LEAFNODE", err)
	case strings.HasPrefix(said, "Maximum Payload"):
		return fmt.Errorf("%w: %w", err, errTooLarge)
	}

	return err
}
