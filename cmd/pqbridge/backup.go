package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
)

// backupNames is how backups are named with -keep: by the time in UTC at which they began.
const backupNames = "2006-01-02T15-04-05Z"

// backUp copies the embedded store to the new folder dest. If a service uses the store, the service
// makes the copy. If keep is not 0, the new folder is inside dest, and only the newest keep folders
// made in this way stay there.
func backUp(ctx context.Context, c *config, dest string, keep int, logger *slog.Logger,
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
	if keep > 0 {
		if found, err := pebblekv.Exists(dest); err != nil || found {
			return cmp.Or(err, fmt.Errorf("%s is a store or a backup itself: "+
				"with -keep, want a folder that has only backups in it", dest))
		}
		dest = filepath.Join(dest, began.UTC().Format(backupNames))
	}
	err = askForBackup(ctx, c.DataDir, dest)
	if errors.Is(err, errNoService) {
		err = backUpStopped(ctx, c, dest, logger)
	}
	if err != nil {
		return err
	}

	took := time.Since(began).Round(time.Millisecond)
	if _, err = fmt.Fprintf(stdout, "backup in %s, made in %v\n", dest, took); keep > 0 {
		err = errors.Join(err, removeOldBackups(dest, keep, stdout))
	}
	return err
}

// removeOldBackups removes what earlier backups of the same store with -keep have left beside the
// newest one, except the latest keep-1 that are complete.
func removeOldBackups(newest string, keep int, stdout io.Writer) error {
	dir, series := filepath.Dir(newest), pebblekv.BackupSeries(newest)
	entries, err := os.ReadDir(dir) // sorted by name
	problems := []error{err}

	var complete, remove []string
	for _, entry := range entries {
		name, unfinished := strings.CutSuffix(entry.Name(), pebblekv.Unfinished)
		began, err := time.Parse(backupNames, name)
		path := filepath.Join(dir, entry.Name())

		switch {
		case err != nil || began.Format(backupNames) != name || !entry.IsDir() || path == newest:
		case series == "" || pebblekv.BackupSeries(path) != series: // somebody else's
		case unfinished:
			remove = append(remove, path)
		default:
			complete = append(complete, path)
		}
	}
	remove = append(remove, complete[:max(0, len(complete)-keep+1)]...)

	for _, path := range remove {
		err := pebblekv.RemoveBackup(path)
		if err == nil {
			_, err = fmt.Fprintf(stdout, "removed %s\n", path)
		}
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("the backup is complete, but an older one cannot be removed: %w", err)
	}
	return nil
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
	return makeBackup(ctx, db, c.DataDir, dest)
}

// inImage is set by the linker for images. A folder of the image itself, unlike a volume, goes with
// the container.
var inImage string

// makeBackup copies db, the store in dir, to the new folder dest.
func makeBackup(ctx context.Context, db *pebblekv.DB, dir, dest string) error {
	if inImage != "" {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err == nil && !onVolume(string(mounts), dest) {
			err = fmt.Errorf("no volume is mounted at %s, so the backup would be gone with this "+
				"container: run it with a volume, as in -v pq-backup:/backup", filepath.Dir(dest))
		}
		if err != nil {
			return err
		}
	}
	return explainPermission(db.Backup(ctx, dest), dir, filepath.Dir(dest))
}

// onVolume reports whether a path is below something mounted, other than the root. mounts is a
// mountinfo of proc(5), with octal escapes in paths that no folder of ours needs.
func onVolume(mounts, path string) bool {
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) > 4 && fields[4] != "/" && strings.HasPrefix(path, fields[4]+"/") {
			return true
		}
	}
	return false
}

// restoreBackup copies the backup in the folder from to an empty PQ_DATA_DIR.
func restoreBackup(ctx context.Context, c *config, from string, logger *slog.Logger,
	stdout io.Writer) error {
	if c.Store != storeEmbedded {
		return errors.New("-restore fills the embedded store, but PQ_STORE is fdb: " +
			"restore FoundationDB with fdbrestore")
	}
	if from == "" {
		return errors.New("-restore needs the folder of a backup, such as -restore /backup/monday")
	}

	from, err := filepath.Abs(from)
	if err != nil {
		return err
	}
	to := c.storeLocation()

	began := time.Now()
	if err := pebblekv.Restore(ctx, from, to, c.pebbleOptions(logger)); err != nil {
		return explainPermission(err, to, from)
	}

	took := time.Since(began).Round(time.Millisecond)
	_, err = fmt.Fprintf(stdout, "restored %s to %s, in %v\n", from, to, took)
	return err
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

// backupURL is for requests on the socket. The body is the path of the new folder, the reply is
// backupMade, or the error as text.
const backupURL = "http://pqbridge/backup"

// backupMade is not 200, with which a service of an older version says that it cannot read the
// request.
const backupMade = http.StatusCreated

// maxText is the most bytes of a request or its reply.
const maxText = 64 << 10

// errNoService: no service takes requests for backups in the folder.
var errNoService = errors.New("no service")

// takeBackupRequests serves the socket for backups of db, whose folder is dir, until stop is
// called. Then stop ends a backup that is under way, and its client is told. Everything else works
// without the socket, so a failure is only logged.
func takeBackupRequests(dir string, db *pebblekv.DB, logger *slog.Logger) (stop func()) {
	listener, err := listenIn(dir)
	if err != nil {
		logger.Warn("cannot take requests for backups: "+
			"pqbridge -backup works only while this service is stopped",
			"socket", filepath.Join(dir, socketName), "error", err)
		return func() {}
	}

	mux := http.NewServeMux()
	mux.HandleFunc("POST /backup", func(w http.ResponseWriter, r *http.Request) {
		if err := serveBackup(r, db, dir, logger); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(backupMade)
	})

	ctx, cancel := context.WithCancel(context.Background())
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}

	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Warn("no longer taking requests for backups", "error", err)
		}
	}()

	return func() {
		cancel()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close() // a client that does not read
		}
		<-served
	}
}

// serveBackup makes the backup that a request asks for.
func serveBackup(r *http.Request, db *pebblekv.DB, dir string, logger *slog.Logger) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxText))
	dest := string(body)
	if err == nil && !filepath.IsAbs(dest) {
		err = fmt.Errorf("the folder %q is not an absolute path", dest)
	}
	if err == nil {
		logger.Info("making a backup", "folder", dest)
		err = makeBackup(r.Context(), db, dir, dest)
	}

	if err != nil {
		logger.Warn("the backup failed", "folder", dest, "error", err)
		return err
	}
	logger.Info("the backup is complete", "folder", dest)
	return nil
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
	client := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial},
	}

	request, err := http.NewRequestWithContext(
		ctx, http.MethodPost, backupURL, strings.NewReader(dest))
	if err != nil {
		return err
	}

	var why []byte
	response, err := client.Do(request)
	if err == nil {
		defer response.Body.Close()
		why, err = io.ReadAll(io.LimitReader(response.Body, maxText))
	}

	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: the service stops making the backup", context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("the service ended before it had made the backup: %w", err)
	case response.StatusCode == http.StatusInternalServerError:
		return errors.New(strings.TrimSpace(string(why)))
	case response.StatusCode != backupMade:
		return fmt.Errorf("the service made no backup, perhaps because it is another version of "+
			"this program: %s: %.200q", response.Status, why)
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

// explainPermission adds what to do to an error that says that this process may not use the folder,
// or one of others.
func explainPermission(err error, folder string, others ...string) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	denied, known := errors.AsType[*fs.PathError](err)
	tmpfs := "; a tmpfs needs --tmpfs %[4]s:uid=%[2]d,gid=%[3]d"
	for _, other := range others {
		if known && strings.HasPrefix(denied.Path, other) {
			folder, tmpfs = other, "" // no place for a backup
		}
	}
	advice := "give it the folder with all that is in it, as in chown -R %[2]d:%[3]d %[4]s " +
		"(of a mounted folder, on the host)"
	if _, err := os.Stat(folder); err != nil { // the folder above it is somebody else's
		advice = "it cannot make a folder in %[5]s, so make one for it there, " +
			"as in mkdir -p %[4]s && chown %[2]d:%[3]d %[4]s"
	}
	return fmt.Errorf("%w\npqbridge runs as user %d and group %d\n"+advice+
		", or run pqbridge as the owner (docker run --user)"+tmpfs,
		err, os.Getuid(), os.Getgid(), folder, filepath.Dir(folder))
}
