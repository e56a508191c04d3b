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

// backUp copies the embedded store to the new folder dest. If a service uses the store, the service
// makes the copy.
func backUp(ctx context.Context, c *config, dest string, logger *slog.Logger,
	stdout io.Writer) error {
	if c.Store != storeEmbedded {
		return errors.New("-backup copies the embedded store, but PQ_STORE is fdb: " +
			"back up FoundationDB with fdbbackup")
	}
	if dest == "" {
		return errors.New("-backup needs the name of a new folder, such as -backup /backup/monday")
	}

	dest, err := filepath.Abs(dest) // the service may have another working folder
	if err != nil {
		return err
	}

	began := time.Now()
	err = askForBackup(ctx, c.DataDir, dest)
	if errors.Is(err, errNoService) {
		err = backUpStopped(ctx, c, dest, logger)
	}
	if err != nil {
		return err
	}

	took := time.Since(began).Round(time.Millisecond)
	_, err = fmt.Fprintf(stdout, "backup in %s, made in %v\n", dest, took)
	return err
}

// backUpStopped copies a store that no service uses.
func backUpStopped(ctx context.Context, c *config, dest string,
	logger *slog.Logger) (err error) {
	if err := wantStore(c.DataDir); err != nil {
		return err
	}
	db, err := pebblekv.Open(c.DataDir, c.pebbleOptions(logger))
	if err != nil {
		return fmt.Errorf("no service takes requests for backups in PQ_DATA_DIR %s, "+
			"and the store there cannot be opened: %w", c.DataDir, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.Backup(ctx, dest)
}

// wantStore returns an error unless a folder has a store. Opening the folder would create one.
func wantStore(dir string) error {
	found, err := pebblekv.Exists(dir)
	if err == nil && !found {
		err = errors.New("there is no store in it")
	}
	if err != nil {
		return fmt.Errorf("PQ_DATA_DIR %s: %w", dir, err)
	}
	return nil
}

// socketName is the socket in the folder of an embedded store on which a service takes requests for
// backups. A backup writes to a path on the service's machine. Neither every NATS client nor every
// user of the HTTP address may do that, but a process that reaches the socket may write to the
// folder anyway.
const socketName = "pqbridge.sock"

// maxReply is the most bytes of a reply.
const maxReply = 64 << 10

// errNoService: no service takes requests for backups in the folder.
var errNoService = errors.New("no service")

type backupRequest struct {
	Dir string `json:"dir"`
}

type backupReply struct {
	Error string `json:"error,omitempty"`
}

// control serves the socket.
type control struct {
	server http.Server
	served chan struct{} // closed when it has ended
	cancel context.CancelFunc
}

// startControl takes requests for backups of db, whose folder is dir. Everything else works without
// the socket, so a failure is only logged.
func startControl(dir string, db *pebblekv.DB, logger *slog.Logger) *control {
	c := &control{served: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel

	listener, err := listenIn(dir)
	if err != nil {
		logger.Warn("cannot take requests for backups: "+
			"pqbridge -backup works only while this service is stopped",
			"socket", filepath.Join(dir, socketName), "error", err)
		close(c.served)
		return c
	}

	mux := http.NewServeMux()
	mux.HandleFunc("POST /backup", func(w http.ResponseWriter, r *http.Request) {
		serveBackup(w, r, db, logger)
	})

	c.server = http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}

	go func() {
		defer close(c.served)
		if err := c.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Warn("no longer taking requests for backups", "error", err)
		}
	}()
	return c
}

// stop ends a backup that is under way, and tells its client.
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
	err := json.NewDecoder(io.LimitReader(r.Body, maxReply)).Decode(&request)

	if err == nil && !filepath.IsAbs(request.Dir) {
		err = fmt.Errorf("the folder %q is not an absolute path", request.Dir)
	}
	if err == nil {
		logger.Info("making a backup", "folder", request.Dir)
		err = db.Backup(r.Context(), request.Dir)
	}

	var reply backupReply
	if err != nil {
		logger.Warn("the backup failed", "folder", request.Dir, "error", err)
		reply.Error = err.Error()
	} else {
		logger.Info("the backup is complete", "folder", request.Dir)
	}

	_ = json.NewEncoder(w).Encode(reply) // the client may be gone
}

// askForBackup asks the service that uses the store in dir for a backup. It returns errNoService if
// no service takes requests there.
func askForBackup(ctx context.Context, dir, dest string) error {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "unix", filepath.Join(dir, socketName))
	if err != nil {
		return errors.Join(errNoService, ctx.Err())
	}
	defer connection.Close()

	dial := func(context.Context, string, string) (net.Conn, error) { return connection, nil }
	transport := &http.Transport{DisableKeepAlives: true, DialContext: dial}
	client := &http.Client{Transport: transport}

	body, err := json.Marshal(backupRequest{dest})
	if err != nil {
		return err
	}

	const url = "http://pqbridge/backup"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}

	var reply backupReply
	response, err := client.Do(request)
	if err == nil {
		defer response.Body.Close()
		err = json.NewDecoder(io.LimitReader(response.Body, maxReply)).Decode(&reply)
	}

	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: the service stops making the backup", context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("the service ended before it had made the backup: %w", err)
	case reply.Error != "":
		return errors.New(reply.Error)
	}
	return nil
}

// listenIn creates the socket in the folder of a store that this process has opened. The system
// allows paths of about a hundred bytes.
func listenIn(dir string) (net.Listener, error) {
	path := filepath.Join(dir, socketName)

	// A process that was killed has left its socket behind.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", path)
}
