// Starts @vercel/cosmosdb-server, which speaks Cosmos DB's REST protocol from memory, without three of its faults:
// reading an absent document answers 500 instead of 404; a batch leaves what it wrote before it failed, knows no patch
// and looks for documents outside of its partition; and no document is too large. Cosmos DB does none of this, and our
// stores rely on it. Prints one line with its address when it is ready.
"use strict";
const path = require("path");
const { createRequire } = require("module");

const fromCache = createRequire(path.join(path.resolve(process.argv[2]), "package.json"));
const own = name => fromCache(`@vercel/cosmosdb-server/lib/${name}`);
const operations = own("handler/_document-operations");
const { patchOperation } = own("handler/_patch-operations");
const readJson = own("json").default;
const LARGEST_BYTES = 2 * 1024 * 1024;

function replaceHandler(name, make) {
  const found = own(`handler/${name}`);
  found.default = make(found.default);
}

const tooLarge = document => Buffer.byteLength(JSON.stringify(document)) > LARGEST_BYTES;

function limited(original) {
  return function limitedHandler(account, req, res, params) {
    if (Number(req.headers["content-length"] || 0) > LARGEST_BYTES) {
      res.statusCode = 413;
      return { code: "RequestEntityTooLarge", message: "Request size is too large" };
    }
    return original(account, req, res, params);
  };
}
["create-document", "replace-document", "upsert-document"].forEach(name => replaceHandler(name, limited));

replaceHandler("read-document", original => function readDocument(account, req, res, params) {
  const collection = account.database(params.dbId).collection(params.collId);
  const [partition] = JSON.parse(req.headers["x-ms-documentdb-partitionkey"] || "[null]");
  if (collection.read() && !collection.document(params.docId, partition).read()) {
    res.statusCode = 404;
    return { code: "NotFound", message: "Entity with the specified id does not exist in the system." };
  }
  return original(account, req, res, params);
});

function perform(collection, input, partitionKey) {
  const step = { ...input, partitionKey };
  if (step.resourceBody && tooLarge(step.resourceBody)) return { statusCode: 413 };
  switch (step.operationType) {
    case "Create": return operations.createOperation(collection, step);
    case "Upsert": return operations.upsertOperation(collection, step);
    case "Replace": return operations.replaceOperation(collection, step);
    case "Delete": return operations.deleteOperation(collection, step);
    case "Read": return operations.readOperation(collection, step);
    case "Patch": return patchOperation(collection, { ...step, ...step.resourceBody });
    default: return { statusCode: 400 };
  }
}

replaceHandler("batch-documents", () => async function batch(account, req, res, { dbId, collId }) {
  const steps = await readJson(req);
  const { documents } = account.database(dbId).collection(collId);
  const collection = account.database(dbId).collection(collId);
  if (!collection.read() || steps.length > 100) {
    res.statusCode = collection.read() ? 400 : 404;
    return { message: "no such collection, or too many steps" };
  }
  const before = [new Map(documents._data), new Map(documents._index)];
  const results = steps.map(() => ({ statusCode: 424, requestCharge: 0 }));
  for (let i = 0; i < steps.length; i += 1) {
    const result = perform(collection, steps[i], req.headers["x-ms-documentdb-partitionkey"]);
    if (result.statusCode >= 400) {
      [documents._data, documents._index] = before;
      results.fill({ statusCode: 424, requestCharge: 0 });
      results[i] = { statusCode: result.statusCode, requestCharge: 1 };
      res.statusCode = 207;
      return results;
    }
    const { body } = result;
    results[i] = { statusCode: result.statusCode, requestCharge: 1, eTag: body && body._etag, resourceBody: body };
  }
  return results;
});

const server = own("index").createHttpServer({ keepAlive: true });
server.keepAliveTimeout = 60000;
const host = process.argv[4] || "127.0.0.1";
server.listen(Number(process.argv[3]), host, () => {
  console.log(`listening at http://${host}:${server.address().port}`);
});
