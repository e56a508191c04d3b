package dashboard

import (
	"context"
	"errors"
	"net/http"

	"github.com/pqbridge/pqbridge/client"
)

// errRefused begins the errors of requests that the NATS server refuses.
var errRefused = errors.New("the NATS user may not")

// deniedBy returns why there will be no answer, "" if there only is none now.
func deniedBy(err error) string {
	if errors.Is(err, errRefused) {
		return err.Error()
	}
	return ""
}

// errAway is the error of all requests while the connection is down: they are not sent.
var errAway = errors.New("NATS is unreachable")

// errNoBridge is client.ErrNoBridge without the subject: none listens on any. It is also the error
// of a request that changes nothing and was not answered in time, or that was not sent in time
// because too many are under way.
var errNoBridge = errors.New("no bridge answers")

// codeOf returns the HTTP status for the error of a request to a bridge.
func codeOf(err error) int {
	var reply *client.Error
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, errRefused):
		return http.StatusForbidden
	case errors.As(err, &reply) && reply.Code >= 400 && reply.Code < 600:
		return int(reply.Code)
	case errors.Is(err, client.ErrBadRequest):
		return http.StatusBadRequest
	case errors.Is(err, client.ErrTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, errNoBridge), errors.Is(err, errAway), errors.Is(err, client.ErrNotSent):
		return http.StatusServiceUnavailable
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	}

	return http.StatusBadGateway
}
