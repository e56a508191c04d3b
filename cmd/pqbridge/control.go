package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
)

// A service with an embedded store takes requests for backups on a socket in the folder of
// the store. A backup writes to a path of the service's machine, which neither everybody on
// NATS nor everybody who reaches the HTTP address may do. Whoever reaches the socket may
// write to the folder anyway.
const socketName = "pqbridge.sock"

// maxReply bounds what is read of a reply, in bytes.
const maxReply = 64 << 10

// errNoService: no service takes requests in the folder.
var errNoService = errors.New("no service")

type backupRequest struct {
	Dir string `json:"dir"`
}

type backupReply struct {
	pebblekv.Backup
	Error string `json:"error,omitempty"`
}

// control serves the socket.
type control struct {
	server http.Server
	served chan struct{} // closed when it has ended
	cancel context.CancelFunc
}

// startControl serves backups of db, whose folder is dir. Without a socket everything else
// still works, so a failure is only logged.
func startControl(dir string, db *pebblekv.DB, logger *slog.Logger) *control {
	c := &control{served: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel

	listener, err := listenIn(dir)
	if err != nil {
		logger.Warn("cannot take requests for backups: pqbridge -backup works only while this service is stopped",
			"socket", filepath.Join(dir, socketName), "error", err)
		close(c.served)
		return c
	}

	mux := http.NewServeMux()
	mux.HandleFunc("POST /backup", func(w http.ResponseWriter, r *http.Request) { serveBackup(w, r, db, logger) })
	c.server = http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx }}

	go func() {
		defer close(c.served)
		if err := c.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Warn("no longer taking requests for backups", "error", err)
		}
	}()
	return c
}

// stop ends a backup that is under way, and lets its client know.
func (c *control) stop() {
	c.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if c.server.Shutdown(ctx) != nil {
		_ = c.server.Close() // a client that does not read
	}
	<-c.served
}

func serveBackup(w http.ResponseWriter, r *http.Request, db *pebblekv.DB, logger *slog.Logger) {
	var request backupRequest
	var reply backupReply
	err := json.NewDecoder(io.LimitReader(r.Body, maxReply)).Decode(&request)

	if err == nil && !filepath.IsAbs(request.Dir) {
		err = fmt.Errorf("the folder %q is not an absolute path", request.Dir)
	}
	if err == nil {
		logger.Info("making a backup", "folder", request.Dir)
		reply.Backup, err = db.Backup(r.Context(), request.Dir)
	}

	if err != nil {
		logger.Warn("the backup failed", "folder", request.Dir, "error", err)
		reply.Error = err.Error()
	} else {
		logger.Info("the backup is complete", "folder", reply.Dir, "files", reply.Files, "bytes", reply.Bytes)
	}
	_ = json.NewEncoder(w).Encode(reply) // the client may be gone
}

// askForBackup asks the service that has the store in dir. It returns errNoService if none
// takes requests.
func askForBackup(ctx context.Context, dir, dest string) (pebblekv.Backup, error) {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "unix", filepath.Join(dir, socketName))
	if err != nil {
		return pebblekv.Backup{}, errors.Join(errNoService, ctx.Err())
	}
	defer connection.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return connection, nil }}}

	body, err := json.Marshal(backupRequest{dest})
	if err != nil {
		return pebblekv.Backup{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://pqbridge/backup", bytes.NewReader(body))
	if err != nil {
		return pebblekv.Backup{}, err
	}

	var reply backupReply
	response, err := client.Do(request)
	if err == nil {
		defer response.Body.Close()
		err = json.NewDecoder(io.LimitReader(response.Body, maxReply)).Decode(&reply)
	}

	switch {
	case ctx.Err() != nil:
		return pebblekv.Backup{}, fmt.Errorf("%w: the service stops making the backup", context.Cause(ctx))
	case err != nil:
		return pebblekv.Backup{}, fmt.Errorf("the service ended before it had made the backup: %w", err)
	case reply.Error != "":
		return pebblekv.Backup{}, errors.New(reply.Error)
	}
	return reply.Backup, nil
}

// listenIn makes the socket in the folder of a store that this process has opened. Its path must not be
// longer than the system allows, about a hundred bytes.
func listenIn(dir string) (net.Listener, error) {
	path := filepath.Join(dir, socketName)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) { // of a process that was killed
		return nil, err
	}
	return net.Listen("unix", path)
}
